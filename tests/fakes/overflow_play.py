"""`make demo-overflow`: the only site of a competition goes down in the middle of it, and comes back.

This machine plays the cluster, and two services on loopback play GitHub and Modal: the clients that ask them are the
true ones, and so are the workflow, the function, the harness and the verdicts.
"""

from __future__ import annotations

import argparse
import json
import secrets
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbslurm import wiring
from kbslurm.backends.github import repository_files
from kbslurm.backends.github.backend import GithubBackend
from kbslurm.backends.local.backend import LocalBackend
from kbslurm.cli.output import printing
from kbslurm.cli.output.board import print_standings
from kbslurm.config import settings as configs
from kbslurm.config import shared_folders
from kbslurm.daemon.loop import Daemon
from kbslurm.daemon.timing import Timing
from kbslurm.domain.board import ranked
from kbslurm.domain.breaker import State
from kbslurm.domain.placement import month_of
from kbslurm.domain.run import Handle, JobName, OpenAttempt, Seen, Sighting
from kbslurm.domain.why import sentences
from kbslurm.errors import EXIT_OK, EXIT_REJECTED, BackendRefused, BackendTrouble
from kbslurm.observe import logs
from kbslurm.ports import JobSpec
from kbslurm.problems import loading
from kbslurm.store.postgres import PostgresStore
from kbslurm_eval.shared.wire import Budget
from tests import demo_stage
from tests.demo_stage import Play, settled
from tests.fakes.github import REPOSITORY, TOKEN, FakeGithub
from tests.fakes.modal import TOKEN as MODAL_TOKEN
from tests.fakes.modal import FakeModal

BOARD = "transpose"
GPUS = ("H100", "A100")
SITE = "cluster"
BRIEF = Budget(launches=3, calls=5, max_calls=5)  # where runs go is shown, not how exactly they are measured
TOML = f"""\
[daemon]
state_dir = "state"
[daemon.local]
name = "{SITE}"
slots = {{ H100 = 1, A100 = 1 }}

[policy]
overflow = "when_down"
[policy.budget]
month = 20.0
[policy.places.github]
classes = {{ H100 = "H100" }}
[policy.places.modal]
classes = {{ A100 = "A100" }}
cost_per_gpu_hour = {{ A100 = 2.50 }}

[github]
repository = "{REPOSITORY}"
gpus = {{ H100 = ["self-hosted", "h100"] }}
ranked_min_isolation = 0
poll_s = 0.3

[modal]
min_isolation = 0
ranked_min_isolation = 0
poll_s = 0.3
[modal.gpus.A100]
slots = 2
"""


class Site(LocalBackend):
    """This machine, with a plug that can be pulled: its jobs go on, and nobody hears of them.

    `last`: the plug is pulled once a run with a higher number has started, before anybody can ask how it ended.
    """

    def __init__(self, of: LocalBackend) -> None:
        self.__dict__.update(of.__dict__)
        self.down = False
        self.last: int | None = None

    def submit(self, job: JobSpec) -> Handle:
        if self.down:
            raise BackendRefused(self.name, "the controller doesn't answer", permanent=False, away=True)
        return super().submit(job)

    def find(self, name: JobName) -> Sighting:
        self._ask()
        return super().find(name)

    def poll(self, attempts: Sequence[OpenAttempt]) -> Mapping[JobName, Sighting]:
        self._ask()
        seen = super().poll(attempts)
        for attempt in attempts:
            if seen[attempt.name].seen in (Seen.RUNNING, Seen.ENDED):
                self._pull_after(attempt)
        return seen

    def collect(self, attempt: OpenAttempt) -> bytes | None:
        self._pull_after(attempt)  # a run that ended between two looks
        self._ask()
        return super().collect(attempt)

    def cancel(self, attempt: OpenAttempt) -> None:
        self._ask()
        super().cancel(attempt)

    def _pull_after(self, attempt: OpenAttempt) -> None:
        if self.last is not None and attempt.run_id > self.last:
            self.down, self.last = True, None

    def _ask(self) -> None:
        if self.down:
            raise BackendTrouble(self.name, "the controller doesn't answer", retry_after_s=0.5)


BEFORE = (
    Play(person="ada", file="accepted/columns.py", gpus=("H100", "A100")),
    Play(person="boris", file="accepted/loops.py", gpus=("H100",)),
)
IN_THE_MIDDLE = Play(person="chidi", file="accepted/slices.py", gpus=("H100",))
WHILE_DOWN = (
    Play(person="boris", file="accepted/zipped.py", gpus=("H100",)),
    Play(person="dana", file="accepted/slices.py", gpus=("A100",)),
    Play(person="chidi", file="wrong_answer/square_only.py", gpus=("A100",), expect="wrong"),
    Play(person="dana", file="crash/beyond_the_end.py", gpus=("H100",), expect="error"),
)
AFTER = (
    Play(person="ada", file="accepted/slices.py", gpus=("H100",)),
    Play(person="boris", file="accepted/columns.py", gpus=("A100",)),
)


class Stage(demo_stage.Stage):
    """The competition, and the site that goes down."""

    def __init__(self, store: PostgresStore, site: Site, daemon: Daemon, *, quiet: bool) -> None:
        super().__init__(store, BOARD, quiet=quiet)
        self.site, self.daemon = site, daemon

    def told_of(self, run: Mapping[str, Any]) -> None:
        """Why a run went elsewhere."""
        if run["backend"] != SITE:
            self.say(f"    because {printing.escape(run['why_here'])}")


def played(stage: Stage) -> bool:
    """The three acts; whether all came as it had to."""
    stage.say(
        "GitHub and Modal are stand-ins here, on loopback: nothing leaves this machine, and no account is needed."
    )
    stage.act("The cluster works")
    before = stage.submit("before", *BEFORE)
    stage.wait(settled(before))
    stage.act("The cluster goes down, in mid-competition")
    stage.site.last = max(run["id"] for run in stage.runs())
    (middle,) = stage.submit("middle", IN_THE_MIDDLE)
    stage.wait(lambda runs: stage.site.down)
    stage.say(f"  #{middle} runs there: its outcome is unknown, so it isn't sent anywhere else")
    during = stage.submit("down", *WHILE_DOWN)
    stage.wait(settled(during))
    waits = next(run for run in stage.runs() if run["submission_id"] == middle)
    lane = stage.daemon.lanes[SITE]
    stage.say(
        f"  {SITE}'s breaker is {lane.breaker.state.value.replace('_', '-')}: {printing.escape(lane.breaker.why)}"
    )
    stage.act("The cluster is back")
    stage.site.down = False
    stage.wait(settled([middle]))
    probes = 0
    while lane.breaker.state is not State.CLOSED and probes < 20:
        probes += 1
        stage.wait(settled(stage.submit("back", replace(AFTER[0], person="eve", mode="test"))))
    after = stage.submit("after", *AFTER)
    stage.wait(settled(after))
    stage.wait(lambda runs: all(run["verdict"] is not None for run in runs))
    stage.act("New runs stay home")
    return waits["verdict"] is None and came_right(stage)


def came_right(stage: Stage) -> bool:
    """Each run one verdict, the expected one, and where it had to be; a second measurement goes wherever a slot is free
    by then."""
    runs = stage.runs()
    where: dict[str, set[str]] = {}
    for run in runs:
        if not run["second"]:
            where.setdefault(stage.acts[run["submission_id"]], set()).add(run["backend"])
    verdicts = stage.store._all("SELECT subject, count(*) AS n FROM event WHERE kind = 'run.scored' GROUP BY 1")
    return (
        all(run["verdict"] == stage.expected[run["submission_id"]] for run in runs)
        and where["before"] == where["middle"] == where["after"] == {SITE}
        and where["down"] == {"github", "modal"}
        and all(row["n"] == 1 for row in verdicts)
    )


@contextmanager
def staged(folder: Path, *, quiet: bool) -> Iterator[Stage]:
    """A database, the three places and a daemon, all below this folder."""
    (folder / "kbslurm.toml").write_text(TOML)
    key = secrets.token_hex(32)
    plain = configs.load(folder / "kbslurm.toml", {})
    wiring.modal_folder(plain, wiring.modal_facts(plain), folder / "app")
    with ExitStack() as stack:
        github = FakeGithub(
            folder / "github",
            repository_files.files(shared_folders.eval_dir()),
            secrets_={"KBSLURM_RUN_KEY": key},
            runners=2,
        )
        stack.callback(github.close)
        modal = stack.enter_context(FakeModal(folder / "app"))
        env = {
            "GITHUB_API_URL": github.url,
            "GITHUB_TOKEN": TOKEN,
            "KBSLURM_RUN_KEY": key,
            "MODAL_SERVER_URL": modal.url,
            "MODAL_TOKEN_ID": MODAL_TOKEN[0],
            "MODAL_TOKEN_SECRET": MODAL_TOKEN[1],
        }
        config = configs.load(folder / "kbslurm.toml", env)
        store = stack.enter_context(wiring.opened_store(config))
        places = wiring.places(config)
        home = next(place for place in places if place.name == SITE)
        assert isinstance(home.backend, LocalBackend)
        site = Site(home.backend)
        places = [replace(home, backend=site) if place is home else place for place in places]
        for place in places:
            if isinstance(place.backend, GithubBackend):
                place.backend.min_isolation = 0  # no configuration may: what plays the runner here is ours alone
        problem = replace(loading.load(shared_folders.path("examples") / "transpose"), budget=BRIEF)
        store.boards.add(BOARD, problem, gpus=GPUS, confirm=False)
        timing = Timing(lease_s=5.0, idle_s=1.0, breaker_s=1.0)
        daemon = Daemon(store, places, timing=timing, rules=wiring.rules(config))
        stop = threading.Event()
        thread = threading.Thread(target=daemon.run, args=(stop,), name="daemon")
        try:
            thread.start()
            yield Stage(store, site, daemon, quiet=quiet)
        finally:
            site.down = False
            stop.set()
            daemon.wake.ring()
            if thread.ident is not None:
                thread.join()


def shown(stage: Stage, ok: bool, *, as_json: bool) -> None:
    """What happened, once more in one table."""
    now = datetime.now(UTC)
    used = stage.store.costs.usage("place", *month_of(now), now)
    if as_json:
        print(
            json.dumps(
                {
                    "ok": ok,
                    "runs": [
                        {
                            "submission": run["submission_id"],
                            "gpu": run["gpu"],
                            "act": stage.acts[run["submission_id"]],
                            "place": run["backend"],
                            "places": list(dict.fromkeys(run["places"])),
                            "verdict": run["verdict"],
                            "second": run["second"],
                            "why": sentences(stage.store.runs.why(run["id"], now)),
                        }
                        for run in stage.runs()
                    ],
                    "usage": [printing.jsonable(row) for row in used],
                }
            )
        )
        return
    rows = [
        (
            f"#{run['submission_id']}",
            printing.escape(run["person"]),
            printing.escape(run["file_name"]),
            run["gpu"],
            printing.coloured(run["verdict"]),
            " → ".join(dict.fromkeys(run["places"])),
        )
        for run in stage.runs()
    ]
    printing.table(("", "person", "file", "GPU", "verdict", "where"), rows)
    stage.say("")
    print_standings(BOARD, {gpu: ranked(stage.store.standings.scored(BOARD, gpu)) for gpu in GPUS}, limit=10)
    places = [(printing.escape(row.name or ""), str(row.runs), f"{row.gpu_s:.0f}", f"{row.money:.4f}") for row in used]
    printing.table(("place", "runs", "GPU-seconds", "EUR"), places)
    stage.say("every run has one verdict, at the expected place" if ok else "[red]that isn't the expected outcome[/]")


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo-overflow", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object at the end instead of text")
    told = parser.parse_args()
    logs.set_up(level="error" if not told.json else "critical")
    with (
        tempfile.TemporaryDirectory(prefix="kb-overflow-") as folder,
        staged(Path(folder), quiet=told.json) as stage,
    ):
        ok = played(stage)
        shown(stage, ok, as_json=told.json)
    return EXIT_OK if ok else EXIT_REJECTED


if __name__ == "__main__":
    raise SystemExit(main())
