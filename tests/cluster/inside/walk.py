"""A whole walk on the test cluster: rows in a real Postgres, the real harness in real containers, a daemon."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbslurm import problems, share, sites
from kbslurm.backends.slurm.backend import SlurmBackend
from kbslurm.daemon import Daemon, WallClock, stop_on_signals
from kbslurm.domain.problem import Problem
from kbslurm.domain.site import Site
from kbslurm.flow.place import Place
from kbslurm.flow.script import script_writer
from kbslurm.probe import probe
from kbslurm.store.postgres import PostgresStore
from tests.cluster.inside.site import site_at
from tests.contract.backend_suite import REPOSITORY
from tests.flow.stage import QUICK, Stage, running

EXAMPLE = REPOSITORY / "examples" / "rowsoftmax"
PATIENCE_S = 240.0


def example(test_s: float = 120.0, folder: Path = EXAMPLE) -> Problem:
    """A real problem, patient enough for a loaded machine, and large enough that one can tell it from an empty call."""
    found = problems.load(folder)
    patient = dataclasses.replace(found.limits, test_s=test_s, benchmark_s=120.0, ranked_s=120.0, total_s=600.0)
    larger = tuple({**case, "rows": 8 * case["rows"]} if "rows" in case else case for case in found.benchmarks)
    return dataclasses.replace(found, limits=patient, benchmarks=larger)


def submission(name: str) -> str:
    """A submission of the example's by its path, without the lines that name its board."""
    text = (EXAMPLE / "submissions" / name).read_text()
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#!"))


def sleeping(seconds: float) -> str:
    """A correct submission that takes its time while it is loaded."""
    return f"import time\ntime.sleep({seconds})\n" + submission("accepted/by_row.py")


def place_of(site: Site) -> tuple[Place, SlurmBackend]:
    """The site as the daemon gets it, with short sweeps."""
    eval_dir = share.eval_dir()
    backend = SlurmBackend(site, eval_dir=eval_dir, probe=lambda step: probe(f"slurm.{step}"))
    place = Place(
        backend=backend,
        root=backend.root,
        script=script_writer(site, templates=share.path("sbatch_templates"), eval_dir=eval_dir),
        poll_s=0.2,
        grace_s=2.0,
        sweep_gap_s=2.0,
        stray_s=600.0,
    )
    return place, backend


@dataclass
class Walk:
    """A stage on the cluster."""

    stage: Stage
    site: Site
    url: str

    @contextmanager
    def daemon(self) -> Iterator[SlurmBackend]:
        """A daemon in this process."""
        place, backend = place_of(self.site)
        with running(Daemon(self.stage.store, [place], clock=self.stage.clock, pace=QUICK)):
            yield backend

    def daemon_process(self, probe_at: str = "") -> subprocess.Popen[bytes]:
        """A daemon of its own, that kills itself at this probe."""
        environment = {"KBSLURM_PROBE": probe_at} if probe_at else {}
        return subprocess.Popen(
            [
                *("env", *(f"{k}={v}" for k, v in environment.items()), sys.executable, "-m"),
                *("tests.cluster.inside.walk", self.url, str(Path(self.site.paths.shared_root) / "site.toml")),
            ],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
        )

    def wait_ended(self, runs: int = 1) -> list[dict[str, Any]]:
        """Every run's row, once all have ended."""
        self.stage.wait_until(lambda: self.stage.open_runs() == 0, patience_s=PATIENCE_S)
        found = self.stage.runs()
        assert len(found) == runs
        return found

    def attempts(self) -> list[dict[str, Any]]:
        return self.stage.rows("SELECT * FROM attempt ORDER BY id")

    def wait_attempt(self, state: str, number: int = 1) -> dict[str, Any]:
        """The run's attempt of this number once it has come to this state."""
        found: list[dict[str, Any]] = []

        def is_so() -> bool:
            found[:] = [row for row in self.attempts() if row["number"] == number and row["state"] == state]
            return bool(found)

        self.stage.wait_until(is_so, patience_s=PATIENCE_S)
        return found[0]

    def wait_began(self) -> dict[str, Any]:
        """The first attempt once its judge has begun, in its container."""
        row = self.wait_attempt("running")
        heartbeat = Path(self.site.paths.shared_root) / "attempts" / row["name"] / "out" / "heartbeat.json"
        self.stage.wait_until(heartbeat.exists, patience_s=PATIENCE_S)
        return self.wait_attempt("running")

    def claims(self) -> int:
        """How many jobs ever claimed an attempt here."""
        return len(list((Path(self.site.paths.shared_root) / "attempts").glob("kb-*/claim/job")))

    def verdicts(self) -> int:
        (found,) = self.stage.rows("SELECT count(*) AS n FROM verdict")
        return int(found["n"])


@contextmanager
def walk_at(
    url: str,
    folder: Path,
    *,
    gpus: Sequence[str] = ("H100",),
    test_s: float = 120.0,
    problem: Path = EXAMPLE,
    **options: Any,
) -> Iterator[Walk]:
    """A board on a fresh database, its site below this folder."""
    stage = Stage.build(url, problem=example(test_s, problem), gpus=gpus, clock=WallClock())
    try:
        yield Walk(stage=stage, site=site_at(folder, **options), url=url)
    finally:
        stage.close()


def main(url: str, file: str) -> None:
    """The daemon of `daemon_process`."""
    place, _ = place_of(sites.load(Path(file)))
    store = PostgresStore(url)
    with stop_on_signals() as stop:
        Daemon(store, [place], clock=WallClock(), pace=QUICK).run(stop)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
