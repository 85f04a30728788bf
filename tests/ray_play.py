"""`make demo-ray`: a competition on a real Ray on loopback. A worker is killed in mid-run, and a third one joins.

Ray is the true one, each of its nodes processes of an address of its own; so are the API at which nodes claim what they
start, the daemon, the harness at isolation level 2, and the verdicts. The GPUs are GPUs in name only.
"""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

from kbslurm import wiring
from kbslurm.api.server import Serving, context_of
from kbslurm.cli.operator import demo_page
from kbslurm.cli.output import printing
from kbslurm.cli.output.board import print_standings
from kbslurm.config import settings as configs
from kbslurm.config import shared_folders
from kbslurm.daemon.loop import Daemon
from kbslurm.domain.board import ranked
from kbslurm.domain.secret_names import of_ray
from kbslurm.errors import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_REJECTED,
    BackendTrouble,
    KbslurmError,
    Misconfigured,
)
from kbslurm.observe import logs
from kbslurm.problems import loading
from kbslurm.store.postgres import PostgresStore
from kbslurm_eval.shared.wire import Budget
from tests import demo_stage
from tests.demo_stage import Play, settled
from tests.ray_cluster import Node, RayCluster, free_port
from tests.services import RAY_CLUSTER, USER_NAMESPACES

BOARD = "transpose"
GPUS = ("H100", "A100")
PLACE = "demo"
LEASE_S = 30  # the shortest: a lost node's runs wait for it twice, which is most of what this takes
TOML = """\
[daemon]
state_dir = "state"

[server]
listen = "127.0.0.1:{port}"

[ray.{place}]
url = "{url}"
service_url = "http://127.0.0.1:{port}"
key_file = "{folder}/run-key"
python = "{python}"
lease_s = {lease_s}
poll_s = 0.5
[ray.{place}.gpus.H100]
num_gpus = 0
resources = {{ H100 = 1 }}
slots = 3
[ray.{place}.gpus.A100]
num_gpus = 0
resources = {{ A100 = 1 }}
slots = 3
"""

BRIEF = Budget(launches=3, calls=5, max_calls=5)  # where runs go is shown, not how exactly they are measured

FIRST = (
    Play(person="ada", file="accepted/columns.py", gpus=("H100",)),
    Play(person="boris", file="accepted/loops.py", gpus=("H100",)),
)
WAITING = (Play(person="dana", file="accepted/slices.py", gpus=("A100",)),)
MEANWHILE = (
    Play(person="chidi", file="wrong_answer/square_only.py", gpus=("H100",), expect="wrong"),
    Play(person="dana", file="crash/beyond_the_end.py", gpus=("H100",), expect="error"),
)
LAST = (
    Play(person="boris", file="accepted/zipped.py", gpus=("H100",)),
    Play(person="dana", file="cheat/forges_result.py", gpus=("H100",), expect="violation"),
)


class Stage(demo_stage.Stage):
    """The competition, and the cluster that it runs on."""

    def __init__(self, store: PostgresStore, ray: RayCluster, *, quiet: bool) -> None:
        super().__init__(store, BOARD, quiet=quiet)
        self.ray = ray
        self.where: dict[str, str] = {}  # by the attempt's name: the address of the node that ran it

    def attempts(self) -> list[dict[str, Any]]:
        """Every attempt that was sent, in order."""
        return self.store._all(
            "SELECT a.name, a.number, a.state, a.started_at, a.run_id, run.submission_id, run.gpu, p.name AS person,"
            " s.file_name FROM attempt a JOIN run ON run.id = a.run_id JOIN submission s ON s.id = run.submission_id"
            " JOIN person p ON p.id = s.person_id WHERE s.via <> 'calibration' ORDER BY a.id"
        )

    def look(self) -> None:
        """Which node runs what, in Ray's own words."""
        for attempt in self.attempts():
            if attempt["name"] not in self.where:
                job = self.ray.job(attempt["name"]) or {}
                if address := str(job.get("driver_agent_http_address") or ""):
                    self.where[attempt["name"]] = address.removeprefix("http://").rpartition(":")[0]

    def wait(self, is_so: Callable[[list[dict[str, Any]]], bool]) -> None:
        with printing.progress(self.quiet) as tell:

            def looked(runs: list[dict[str, Any]]) -> bool:
                self.look()
                done = [run for run in runs if run["verdict"] is not None]
                tell({"phase": "waiting for Ray", "done": len(done), "of": len(runs)})
                return is_so(runs)

            super().wait(looked)

    def where_of(self, run: Mapping[str, Any]) -> str:
        """The node of its last attempt."""
        self.look()
        names = [one["name"] for one in self.attempts() if one["run_id"] == run["id"]]
        return worker_at(self.where.get(names[-1], ""))

    def running_on(self, nodes: list[Node]) -> tuple[dict[str, Any], Node] | None:
        """An attempt in mid-run on one of these nodes, and that node."""
        self.look()
        by_address = {node.address: node for node in nodes}
        for attempt in self.attempts():
            node = by_address.get(self.where.get(attempt["name"], ""))
            if attempt["state"] == "running" and node is not None:
                return attempt, node
        return None


def worker_at(address: str) -> str:
    """Which worker it is for whoever reads the story: 127.0.0.3 is worker 1."""
    return f"worker {int(address.rpartition('.')[2]) - 2}" if address else "never started"


def played(stage: Stage) -> bool:
    """The acts; whether all came as it had to."""
    stage.act("Two workers, each with an H100 in name")
    workers = [stage.ray.add_worker(resources={"H100": 1}) for _ in range(2)]
    first = stage.submit("first", *FIRST)
    waiting = stage.submit("waiting", *WAITING)
    stage.say(f"  #{waiting[0]} asks for an A100, which no node has: Ray lets it wait")
    stage.act("A worker is killed in mid-run")
    found: list[tuple[dict[str, Any], Node]] = []

    def runs_there(_: Any) -> bool:
        if (running := stage.running_on(workers)) is not None:
            found.append(running)
        return bool(found)

    stage.wait(runs_there)
    lost, node = found[0]
    node.kill()
    what = printing.escape(f"#{lost['submission_id']} {lost['person']} {lost['file_name']}")
    stage.say(f"  {worker_at(node.address)} dies by SIGKILL while {what} runs on it")
    stage.say(
        f"  Once nothing was heard from it for its lease of {LEASE_S} s and a margin, that run is over for certain"
    )
    meanwhile = stage.submit("meanwhile", *MEANWHILE)
    stage.act("A third worker joins, with an A100 and an H100 in name")
    third = stage.ray.add_worker(cpus=2, resources={"A100": 1, "H100": 1})
    last = stage.submit("last", *LAST)
    others = [one for one in [*first, *waiting, *meanwhile, *last] if one != lost["submission_id"]]
    stage.wait(settled(others))
    stage.act("The lost run is repeated elsewhere")
    stage.wait(settled([lost["submission_id"]]))
    stage.wait(lambda runs: all(run["verdict"] is not None for run in runs))
    stage.look()
    stage.act("The end")
    return came_right(stage, lost, node, third)


def came_right(stage: Stage, lost: Mapping[str, Any], dead: Node, third: Node) -> bool:
    """Each run one verdict, the expected one; what was lost was started twice, elsewhere, and nothing else was: another
    job that Ray had sent to the dead worker was never claimed."""
    runs, attempts = stage.runs(), stage.attempts()
    verdicts = stage.store._all("SELECT subject, count(*) AS n FROM event WHERE kind = 'run.scored' GROUP BY 1")
    started = [one["run_id"] for one in attempts if one["started_at"] is not None]
    twice = {run_id for run_id in started if started.count(run_id) > 1}
    again = next(one for one in reversed(attempts) if one["run_id"] == lost["run_id"])
    on_the_third = {one["run_id"] for one in attempts if stage.where.get(one["name"]) == third.address}
    return (
        all(run["verdict"] == stage.expected[run["submission_id"]] for run in runs)
        and all(row["n"] == 1 for row in verdicts)
        and twice == {lost["run_id"]}
        and stage.where[lost["name"]] == dead.address != stage.where[again["name"]]
        and any(run["id"] in on_the_third and run["gpu"] == "A100" for run in runs)
    )


@contextmanager
def staged(folder: Path, *, quiet: bool, say: Any) -> Iterator[tuple[Stage, Any, str]]:
    """A Ray, a database, the API and a daemon, all below this folder and on loopback."""
    with ExitStack() as stack:
        say("starting Ray: its head, on loopback")
        ray = RayCluster()
        stack.enter_context(ray)
        say("starting the database, the API and the daemon")
        port, key = free_port("127.0.0.1"), secrets.token_hex(32)
        file = folder / "kbslurm.toml"
        told = {"place": PLACE, "port": port, "url": ray.url, "folder": folder, "lease_s": LEASE_S}
        file.write_text(TOML.format(**told, python=sys.executable))
        token_name, key_name = of_ray(PLACE)
        for name, text in (("run-key", key), (".env", f"{token_name}={ray.token}\n{key_name}={key}\n")):
            held = folder / name  # .env is beside kbslurm.toml, so that every other command finds them too
            held.touch(0o600)
            held.write_text(text)
        config = configs.load(file, {})
        store = stack.enter_context(wiring.opened_store(config))
        problem = replace(loading.load(shared_folders.path("examples") / "transpose"), budget=BRIEF)
        store.boards.add(BOARD, problem, gpus=GPUS, confirm=False)
        serving = stack.enter_context(Serving(context_of(config, store), host="127.0.0.1", port=port))
        daemon = Daemon(store, wiring.places(config), rules=wiring.rules(config))
        stop = threading.Event()
        thread = threading.Thread(target=daemon.run, args=(stop,), name="daemon")
        try:
            thread.start()
            yield Stage(store, ray, quiet=quiet), config, serving.url
        finally:
            with suppress(ValueError):  # whoever presses ^C twice still leaves nothing behind
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            stop.set()
            daemon.wake.ring()
            if thread.ident is not None:
                thread.join()


def shown(stage: Stage, ok: bool, *, as_json: bool) -> None:
    """What happened, once more in one table."""
    attempts = stage.attempts()
    nodes = {
        run_id: [stage.where.get(one["name"], "") for one in attempts if one["run_id"] == run_id]
        for run_id in {one["run_id"] for one in attempts}
    }
    runs = stage.runs()
    if as_json:
        keys = ("gpu", "verdict", "second", "score_s")
        rows = [
            {
                "submission": run["submission_id"],
                "nodes": [address or None for address in nodes.get(run["id"], [])],
                **{key: run[key] for key in keys},
            }
            for run in runs
        ]
        print(json.dumps({"ok": ok, "place": PLACE, "runs": rows}))
        return
    table = [
        (
            f"#{run['submission_id']}",
            printing.escape(run["person"]),
            printing.escape(run["file_name"]),
            run["gpu"],
            printing.coloured(run["verdict"]),
            " → ".join(worker_at(address) for address in nodes.get(run["id"], [])),
        )
        for run in runs
    ]
    printing.table(("", "person", "file", "GPU", "verdict", "ran on"), table)
    stage.say("")
    print_standings(BOARD, {gpu: ranked(stage.store.standings.scored(BOARD, gpu)) for gpu in GPUS}, limit=10)
    level = stage.store._all("SELECT min(isolation) AS least FROM verdict")[0]["least"]
    stage.say(f"Measured at isolation level {level}, on CPUs that only carry the names of GPUs.")
    stage.say("every run has one verdict" if ok else "[red]that isn't the expected outcome[/]")


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo-ray", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object at the end instead of text")
    parser.add_argument("--once", action="store_true", help="exit when it is done, even on a terminal")
    told = parser.parse_args()
    signal.signal(signal.SIGTERM, _ended)
    try:
        return _told(as_json=told.json, stays=not told.json and not told.once and sys.stdin.isatty())
    except KbslurmError as error:
        printing.error(error, as_json=told.json)
        return error.exit_code
    except AssertionError as error:  # Ray, or a run, didn't come as far as it had to
        trouble = BackendTrouble(PLACE, str(error).partition("\n")[0] or "the demo didn't go as it had to")
        printing.error(trouble, as_json=told.json)
        return trouble.exit_code
    except KeyboardInterrupt:
        if told.json:
            print(json.dumps({"error": {"kind": "Interrupted", "message": "interrupted", "hint": None}}))
        else:
            printing.err().print("\ninterrupted")
        return EXIT_INTERRUPTED


def _told(*, as_json: bool, stays: bool) -> int:
    logs.set_up(level="critical" if as_json else "error")
    if not RAY_CLUSTER.there():
        raise Misconfigured("Ray isn't installed in .ray/", fix="Run: make demo-ray, which installs it first.")
    if not USER_NAMESPACES.there():
        how = USER_NAMESPACES.how_here
        fix = f"Run: {how}" if "sysctl" in how else "Run it outside this container."
        raise Misconfigured("runs on Ray need isolation level 2, but user namespaces aren't allowed here", fix=fix)

    def say(text: str) -> None:
        if not as_json:
            printing.err().print(f"[dim]·[/] {printing.escape(text)}")

    with (
        tempfile.TemporaryDirectory(prefix="kb-demo-ray-") as folder,
        staged(Path(folder), quiet=as_json, say=say) as (stage, _, url),
    ):
        ok = played(stage)
        shown(stage, ok, as_json=as_json)
        if stays:
            demo_page.stay(stage.store, Path(folder), url, BOARD, GPUS[0], again="demo --ray")
    return EXIT_OK if ok else EXIT_REJECTED


def _ended(*_: object) -> Never:
    """Ended by SIGTERM like by ^C: everything that was started is ended too."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    raise SystemExit(main())
