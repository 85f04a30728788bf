"""The benches of `make bench-cluster`, on the login node: `python -m tests.cluster.inside.bench ROWS SCALE [PART…]`.

Everything runs for real (rows in Postgres, the daemon at its default pace, sbatch, Apptainer); only the harness is one
that does nothing but last. Each row becomes a line of the file ROWS as soon as it is known.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from kbslurm.backends.paths import AttemptPaths
from kbslurm.backends.slurm.backend import SlurmBackend
from kbslurm.config import shared_folders, sites
from kbslurm.daemon.clock import WallClock
from kbslurm.daemon.loop import Daemon
from kbslurm.domain.apptainer import ApptainerCommand, Bind
from kbslurm.domain.run import SubmissionId
from kbslurm.domain.site import GpuType, Site
from kbslurm.flow.place import Place
from kbslurm.flow.script import (
    KEEPER,
    SUPERVISOR,
    attempts_folder,
    harness_folder,
    keeper_writer,
    keepers_folder,
    script_writer,
)
from kbslurm.store import migrate
from kbslurm_eval.shared.wire import unseal
from tests import bench, databases
from tests.bench import Row, percentile, scaled
from tests.cluster.inside.site import site_text
from tests.contract.backend_suite import REPOSITORY
from tests.flow.stage import Stage, running

HARNESS = Path(__file__).with_name("bench_harness.py")
TOOLS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo")
PATIENCE_S = 1500.0
PAIRS, IN_FLIGHT, QUEUED = 10, 100, 1_000
GPUS, GPUS_IN_ALL = ("H100", "A100"), 12
IDLE_S, RUN_LASTS_S = 5.0, 1.0
# One line per call, and no other process: what counts must not weigh.
COUNTING = '#!/bin/sh\necho {tool} >>"{counts}"\nexec /usr/bin/{tool} "$@"\n'


# ---------------------------------------------------------------------------------------------------------- the service


class Stamps:
    """When submit() came to each of its steps, by the clock that everything here is measured with."""

    def __init__(self) -> None:
        self.at_ns: dict[str, int] = {}

    def __call__(self, step: str) -> None:
        self.at_ns[step] = time.time_ns()


@dataclass(kw_only=True)
class ClusterService:
    """The service on the cluster, in a folder of its own, with a harness that only lasts."""

    stage: Stage
    site: Site
    place: Place
    backend: SlurmBackend
    folder: Path
    asking: psycopg.Connection[tuple[int]]
    stamps: Stamps

    def is_over(self, submission: SubmissionId | None = None) -> bool:
        """Whether its runs have all ended. One kept connection: a new one each time would weigh on what is measured."""
        which = "" if submission is None else f" AND submission_id = {int(submission)}"
        found = self.asking.execute(f"SELECT count(*) FROM run WHERE ended_at IS NULL{which}".encode()).fetchone()
        return found == (0,)

    def wait_over(self, submission: SubmissionId | None = None) -> None:
        self.stage.wait_until(lambda: self.is_over(submission), patience_s=PATIENCE_S)

    @contextmanager
    def daemon(self) -> Iterator[None]:
        """At the pace that a site gets by default."""
        with running(Daemon(self.stage.store, [self.place])):
            yield

    def calls(self) -> Counter[str]:
        """How often each of Slurm's commands was really run."""
        file = self.folder / "counts"
        return Counter(file.read_text().split()) if file.exists() else Counter()

    def attempts(self) -> list[Attempt]:
        """Every attempt that was scored, with what its files say."""
        rows = self.stage.rows("SELECT name, gpu, telemetry FROM attempt WHERE telemetry ? 'harness_started_at_ns'")
        return [Attempt.of(row, AttemptPaths(root=self.backend.root, name=row["name"])) for row in rows]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt's moments, in nanoseconds."""

    gpu: str
    sent_ns: int
    claimed_ns: int
    began_ns: int
    ended_ns: int

    @classmethod
    def of(cls, row: Mapping[str, Any], paths: AttemptPaths) -> Attempt:
        return cls(
            gpu=row["gpu"],
            sent_ns=_written_ns(paths),
            claimed_ns=(paths.claim / "job").stat().st_mtime_ns,
            began_ns=row["telemetry"]["harness_started_at_ns"],
            ended_ns=row["telemetry"]["harness_ended_at_ns"],
        )


def _written_ns(paths: AttemptPaths) -> int:
    """When its job's ID was noted, or to which keeper it goes."""
    file = paths.keeper if paths.keeper.exists() else paths.dir / "job_id"
    return file.stat().st_mtime_ns


@contextmanager
def service(
    server: databases.Server, *, min_interval_s: float, max_open: int | None = None, more: str = ""
) -> Iterator[ClusterService]:
    """A service of its own. `min_interval_s`: how often its site may be asked for its queue. `more`: of its file, about
    its first GPU type."""
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir="/shared"))
    try:
        url = server.create()
        migrate.upgrade(url)
        with (
            closing(Stage.build(url, gpus=GPUS, clock=WallClock())) as stage,
            psycopg.connect(url, autocommit=True) as asking,
        ):
            yield _furnished(stage, asking, folder, min_interval_s, max_open, more)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _furnished(
    stage: Stage,
    asking: psycopg.Connection[tuple[int]],
    folder: Path,
    min_interval_s: float,
    max_open: int | None,
    more: str,
) -> ClusterService:
    text = site_text(folder, more=("" if max_open is None else f"max_open = {max_open}\n") + more)
    text = text.replace("min_interval = 0.1", f"min_interval = {min_interval_s}")
    text = text.replace("[poll]", f'bin_dir = "{_counting(folder)}"\n\n[poll]')
    file = folder / "site.toml"
    file.write_text(text)
    site, stamps, eval_dir = sites.load(file), Stamps(), _harness(folder / "eval")
    backend, templates = (
        SlurmBackend(site, eval_dir=eval_dir, crash_point=stamps),
        shared_folders.path("sbatch_templates"),
    )
    place = Place(
        backend=backend,
        root=backend.root,
        script=script_writer(site, templates=templates, eval_dir=eval_dir),
        warm={name: gpu.warm for name, gpu in site.gpus.items() if gpu.warm is not None},
        keepers_root=keepers_folder(site),
        keeper_script=keeper_writer(site, templates=templates, eval_dir=eval_dir),
        poll_s=min(1.0, site.poll.min_interval_s),
    )
    return ClusterService(
        stage=stage, site=site, place=place, backend=backend, folder=folder, asking=asking, stamps=stamps
    )


def _harness(folder: Path) -> Path:
    for file in ("__init__.py", "shared/__init__.py", "shared/wire.py", "shared/image_digest.py"):
        placed = folder / "kbslurm_eval" / file
        placed.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / "eval" / "kbslurm_eval" / file, placed)
    shutil.copy(HARNESS, folder / "__main__.py")
    for program in (SUPERVISOR, KEEPER):
        shutil.copy(REPOSITORY / "eval" / program, folder / program)
    return folder


def _counting(folder: Path) -> Path:
    """Slurm's commands, each with a counter before it."""
    programs = folder / "bin"
    programs.mkdir()
    for tool in TOOLS:
        (programs / tool).write_text(COUNTING.format(tool=tool, counts=folder / "counts"))
        (programs / tool).chmod(0o755)
    return programs


# -------------------------------------------------------------------------------------------------------------- by hand


@dataclass(frozen=True, kw_only=True)
class ByHand:
    """The same harness in the same containers, sent by whoever sits there: one sbatch --wrap, no service around it."""

    service: ClusterService
    manifest: bytes
    key: bytes

    @classmethod
    def like(cls, service: ClusterService) -> ByHand:
        """With the manifest of the attempt that this service ran last."""
        (row,) = service.stage.rows("SELECT name FROM attempt ORDER BY id DESC LIMIT 1")
        paths = AttemptPaths(root=attempts_folder(service.site), name=row["name"])
        return cls(service=service, manifest=paths.manifest.read_bytes(), key=paths.key.read_bytes())

    def send(self, folder: Path, *options: str, out: str = "/kb/out") -> None:
        """`options` say where. What the jobs leave is below `folder`/out."""
        self.furnish(folder)
        # each kind of GPU has its image, a directory or a file, for them as for us
        ways = "".join(
            f"{gpu.partition}) exec {self.container(gpu, folder, out)} ;; " for gpu in self.service.site.gpus.values()
        )
        wrap = f"date +%s%N >{folder}/script-${{SLURM_ARRAY_TASK_ID:-0}}; case $SLURM_JOB_PARTITION in {ways}esac"
        gpu = self.service.site.gpus["H100"]
        subprocess.run(
            [
                *("/usr/bin/sbatch", "--parsable", f"--cpus-per-task={gpu.cpus}", f"--mem={gpu.memory_mb}M"),
                *("--time=5", f"--chdir={folder}", f"--output={folder}/log", *options, f"--wrap={wrap}"),
            ],
            check=True,
            timeout=120,
            stdout=subprocess.DEVNULL,
        )

    def furnish(self, folder: Path) -> None:
        """What a harness needs."""
        (folder / "out").mkdir(parents=True)
        (folder / "manifest.json").write_bytes(self.manifest)
        (folder / "key").write_bytes(self.key)

    def container(self, gpu: GpuType, folder: Path, out: str) -> str:
        site = self.service.site
        words = ApptainerCommand(
            image=site.image_of(gpu),
            network=site.container.network,
            own_pids=False,
            binds=(
                Bind(source=str(harness_folder(site, self.service.folder / "eval")), target="/eval"),
                Bind(source=str(folder / "manifest.json"), target="/kb/manifest.json"),
                Bind(source=str(folder / "key"), target="/kb/key"),
                Bind(source=str(folder / "out"), target="/kb/out", writable=True),
            ),
            command=("python3", "-I", "/eval", "/kb/manifest.json", "--key", "/kb/key", "--out"),
        )
        return f"{words.shell()} {out}"


def wait_until(holds: Callable[[], bool]) -> None:
    """Look until it holds; for what has no bell."""
    give_up = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up, "it never came to be so"
        threading.Event().wait(0.05)


# -------------------------------------------------------------------------------------------------------------- latency


@dataclass(frozen=True, kw_only=True)
class Way:
    """One job's way to its first line, in seconds from the start: sbatch called, sbatch done, script runs, harness."""

    called_s: float
    sent_s: float
    script_s: float
    harness_s: float
    verdict_s: float = 0.0


def latency(server: databases.Server) -> list[Row]:
    """accept → first line against sbatch --wrap, one after the other in turns; and exit → verdict."""
    ours, bare = [], []
    with service(server, min_interval_s=15.0) as our, our.daemon():
        walked(our)  # the first one pays for connections, caches, the staged harness and the image's digest
        by_hand = ByHand.like(our)
        _sent(by_hand, "warm")
        pairs = scaled(PAIRS, least=3)
        for n in range(pairs):
            _settle(n / pairs)
            ours.append(walked(our))
            _settle(n / pairs)
            bare.append(_sent(by_hand, str(n)))
    mine, theirs = medians(ours), medians(bare)
    return [
        Row(
            name=f"accept → first line of the harness, p50 of {len(ours)}",
            value=mine.harness_s,
            unit="s",
            against=f"sbatch --wrap of the same container {theirs.harness_s:.3f} s",
            ratio=mine.harness_s / theirs.harness_s,
            at_most=1.15,
        ),
        *(
            Row(name=f"… {what}", value=here, unit="s", against=f"by hand {there:.3f} s")
            for what, here, there in (
                ("until sbatch is called", mine.called_s, theirs.called_s),
                ("sbatch itself", mine.sent_s - mine.called_s, theirs.sent_s - theirs.called_s),
                (
                    "from sbatch's end to the script (below 0: Slurm was quicker)",
                    mine.script_s - mine.sent_s,
                    theirs.script_s - theirs.sent_s,
                ),
                ("script and container", mine.harness_s - mine.script_s, theirs.harness_s - theirs.script_s),
            )
        ),
        Row(name="harness exit → verdict to be seen, p50", value=mine.verdict_s, unit="s", at_most=1.0),
        Row(
            name="harness exit → verdict to be seen, p95",
            value=percentile([way.verdict_s for way in ours], 95),
            unit="s",
        ),
    ]


def _settle(phase: float) -> None:
    """Let Slurm be done with the last job; then go at this fraction of a second, for it looks for work once a second.

    Both ways start at the same fractions, spread over the whole second: else chance decides which of them waits.
    """
    ask = ["/usr/bin/squeue", "--me", "-h", "-t", "PD,R,CG"]
    wait_until(lambda: not subprocess.run(ask, check=True, timeout=60, stdout=subprocess.PIPE).stdout)
    threading.Event().wait((phase - time.time()) % 1.0)


def medians(ways: Sequence[Way]) -> Way:
    told = [dataclasses.asdict(way) for way in ways]
    return Way(**{name: percentile([way[name] for way in told], 50) for name in told[0]})


def walked(our: ClusterService, gpu: str = "H100") -> Way:
    began_ns = time.time_ns()
    receipt = our.stage.submit("# 0.1\n", mode="test", gpus=[gpu])
    our.wait_over(receipt.submission_id)
    seen_ns = time.time_ns()
    last = max(our.attempts(), key=lambda attempt: attempt.began_ns)
    return Way(
        called_s=(our.stamps.at_ns["folder"] - began_ns) / 1e9,
        sent_s=(our.stamps.at_ns["sent"] - began_ns) / 1e9,
        script_s=(last.claimed_ns - began_ns) / 1e9,
        harness_s=(last.began_ns - began_ns) / 1e9,
        verdict_s=(seen_ns - last.ended_ns) / 1e9,
    )


def _sent(by_hand: ByHand, name: str) -> Way:
    folder = by_hand.service.folder / f"by-hand-{name}"
    began_ns = time.time_ns()
    by_hand.send(folder, "--partition=gpu-h100", "--gres=gpu:h100:1")
    sent_ns = time.time_ns()
    report = folder / "out" / "report.json"
    wait_until(report.exists)
    harness_ns = unseal(report.read_bytes(), by_hand.key).started_at_ns
    script_ns = int((folder / "script-0").read_text())
    return Way(
        called_s=0.0,
        sent_s=(sent_ns - began_ns) / 1e9,
        script_s=(script_ns - began_ns) / 1e9,
        harness_s=(harness_ns - began_ns) / 1e9,
    )


# ---------------------------------------------------------------------------------------------------------------- calls


def calls(server: databases.Server) -> list[Row]:
    """What the scheduler is asked, with many runs in flight and with none."""
    count, every_s = scaled(IN_FLIGHT, least=12), 1.0
    with service(server, min_interval_s=every_s, max_open=count) as our:
        for n in range(count):
            our.stage.submit("# 1\n", by=f"p{n % 20}", mode="test", gpus=["H100"])
        began = time.monotonic()
        with our.daemon():
            our.wait_over()
            took_s = time.monotonic() - began
            busy = our.calls()
            our.stage.store.events.wait(0.5)
            threading.Event().wait(IDLE_S)
            idle = our.calls().total() - busy.total()
    told = ", ".join(f"{tool} {n}" for tool, n in sorted(busy.items()))
    return [
        Row(
            name=f"scheduler calls per finished attempt, {count} in flight",
            value=busy.total() / count,
            unit="calls",
            against=told,
            at_most=2.0,
        ),
        Row(
            name=f"squeue calls per look that was due (every {every_s:g} s)",
            value=busy["squeue"] / (took_s / every_s + 1),
            unit="calls",
            at_most=1.0,
        ),
        Row(name=f"scheduler calls in {IDLE_S:g} s with nothing open", value=idle, unit="calls", at_most=0.0),
    ]


# ----------------------------------------------------------------------------------------------------------- GPUs busy


def busy(server: databases.Server) -> list[Row]:
    """Queued one-second runs on all GPUs, against the same as one array.

    Busy is the second that a run needs: what it takes longer on a loaded machine is nobody's work.
    """
    count = scaled(QUEUED, least=60)
    with service(server, min_interval_s=1.0) as our:
        with our.daemon():
            for gpu in GPUS:  # the first ones pay for connections and caches, and for what each node learns of an image
                walked(our, gpu)
        by_hand = ByHand.like(our)
        before = {attempt.began_ns for attempt in our.attempts()}
        for n in range(count):
            our.stage.submit(f"# {RUN_LASTS_S}\n", by=f"p{n % 20}", mode="test", gpus=[GPUS[n % 2]])
        began_ns = time.time_ns()
        with our.daemon():
            our.wait_over()
        done = [attempt for attempt in our.attempts() if attempt.began_ns not in before]
        assert len(done) == count, f"{len(done)} of {count} runs reported"
        mine_s = (max(one.ended_ns for one in done) - began_ns) / 1e9
        array_s, array_lead_s = _as_array(dataclasses.replace(by_hand, manifest=_lasting(by_hand.manifest)), count)
    waited = min(_share_waiting([one for one in done if one.gpu == gpu], began_ns) for gpu in GPUS)
    lead_s = percentile([(one.began_ns - one.claimed_ns) / 1e9 for one in done], 50)
    mine, theirs = (count * RUN_LASTS_S / (GPUS_IN_ALL * took_s) for took_s in (mine_s, array_s))
    return [
        Row(
            name=f"GPU busy fraction, {count:,} one-second runs on {GPUS_IN_ALL} GPUs",
            value=mine,
            unit="",
            against=f"as one array {theirs:.3f} ({mine_s:.0f} s, the array {array_s:.0f} s)",
            ratio=mine / theirs,
            at_least=0.9,
        ),
        Row(name="… share of the time that Slurm had a job of ours waiting for a GPU", value=waited, unit=""),
        Row(
            name="… script → first line of the harness, p50",
            value=lead_s,
            unit="s",
            against=f"in the array {array_lead_s:.3f} s",
        ),
    ]


def _as_array(by_hand: ByHand, count: int) -> tuple[float, float]:
    """(seconds from sbatch to the last end, seconds from a task's script to its first line at p50)."""
    folder = by_hand.service.folder / "array"
    began_ns = time.time_ns()
    where = ("--partition=gpu-h100,gpu-a100", "--gres=gpu:1", f"--array=0-{count - 1}")
    by_hand.send(folder, *where, out="/kb/out/$SLURM_ARRAY_TASK_ID")
    reports = [folder / "out" / str(n) / "report.json" for n in range(count)]
    wait_until(lambda: all(file.exists() for file in reversed(reports)))
    told = [unseal(file.read_bytes(), by_hand.key) for file in reports]
    scripts = [int((folder / f"script-{n}").read_text()) for n in range(count)]
    leads = [(one.started_at_ns - script) / 1e9 for one, script in zip(told, scripts, strict=True)]
    return (max(one.ended_at_ns for one in told) - began_ns) / 1e9, percentile(leads, 50)


def _lasting(manifest: bytes) -> bytes:
    return json.dumps({**json.loads(manifest), "source": f"# {RUN_LASTS_S}\n"}).encode()


def _share_waiting(attempts: Sequence[Attempt], began_ns: int) -> float:
    """The share of the time until the last was sent that at least one sent job had not been started."""
    until_ns = max(one.sent_ns for one in attempts)
    covered, reached = 0, began_ns
    for one in sorted(attempts, key=lambda one: one.sent_ns):
        covered += max(0, min(one.claimed_ns, until_ns) - max(one.sent_ns, reached))
        reached = max(reached, one.claimed_ns)
    return covered / (until_ns - began_ns)


# ----------------------------------------------------------------------------------------------------------------- main


def warm(server: databases.Server) -> list[Row]:
    """Runs in keepers."""
    from tests.cluster.inside import bench_warm

    return bench_warm.warm(server)


PARTS: Mapping[str, Callable[[databases.Server], list[Row]]] = {
    "latency": latency,
    "calls": calls,
    "busy": busy,
    "warm": warm,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("scale", type=float)
    parser.add_argument("parts", nargs="*", metavar="PART", help="only these: " + ", ".join(PARTS))
    asked = parser.parse_args()
    bench.SCALE = asked.scale
    os.umask(0o022)
    with databases.server() as server, asked.rows.open("w") as file:
        for name in asked.parts or PARTS:
            for row in PARTS[name](server):
                file.write(json.dumps(dataclasses.asdict(row)) + "\n")
                file.flush()


if __name__ == "__main__":
    main()
