"""A whole walk on the test cluster: rows in a real Postgres, the real harness in real containers, a daemon."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbslurm import wiring
from kbslurm.backends.slurm.backend import SlurmBackend
from kbslurm.config import shared_folders, sites
from kbslurm.daemon.clock import WallClock
from kbslurm.daemon.loop import Daemon
from kbslurm.daemon.timing import Timing
from kbslurm.domain.problem import Problem
from kbslurm.domain.site import Site
from kbslurm.flow.place import Place
from kbslurm.flow.script import keeper_writer, script_writer
from kbslurm.observe.crash_points import crash_point
from kbslurm.problems import loading
from tests.chaos import zygote
from tests.chaos.killing import Killer
from tests.cluster.inside.site import at_default_pace, site_at
from tests.contract.backend_suite import REPOSITORY
from tests.flow.stage import QUICK, Stage, running

GOOD = "accepted/by_row.py"
EXAMPLE = REPOSITORY / "examples" / "rowsoftmax"
PATIENCE_S = 600.0 if at_default_pace() else 240.0


def example(test_s: float = 120.0, folder: Path = EXAMPLE) -> Problem:
    """A real problem, patient enough for a loaded machine, and large enough that one can tell it from an empty call.
    Without its baseline: its boards aren't calibrated first."""
    found = loading.load(folder)
    patient = dataclasses.replace(found.limits, test_s=test_s, benchmark_s=120.0, ranked_s=120.0, total_s=600.0)
    larger = tuple({**case, "rows": 8 * case["rows"]} if "rows" in case else case for case in found.benchmarks)
    return dataclasses.replace(found, limits=patient, benchmarks=larger, config={})


def submission(name: str) -> str:
    """A submission of the example's by its path, without the lines that name its board."""
    text = (EXAMPLE / "submissions" / name).read_text()
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#!"))


def sleeping(seconds: float) -> str:
    """A correct submission that takes its time while it is loaded."""
    return f"import time\ntime.sleep({seconds})\n" + submission("accepted/by_row.py")


def place_of(site: Site, eval_dir: Path | None = None) -> tuple[Place, SlurmBackend]:
    """The site as the daemon gets it, with short sweeps, or exactly so at the default pace (`make test-faults`). With
    another harness, if one is named."""
    usual = wiring.slurm_place(site)
    if at_default_pace() and eval_dir is None:
        assert isinstance(usual.backend, SlurmBackend)
        return usual, usual.backend
    eval_dir = eval_dir or shared_folders.eval_dir()
    backend = SlurmBackend(site, eval_dir=eval_dir, crash_point=lambda step: crash_point(f"slurm.{step}"))
    templates = shared_folders.path("sbatch_templates")
    place = Place(
        backend=backend,
        root=backend.root,
        script=script_writer(site, templates=templates, eval_dir=eval_dir),
        keepers_root=usual.keepers_root,
        keeper_script=keeper_writer(site, templates=templates, eval_dir=eval_dir),
        warm=usual.warm,
        poll_s=0.2,
        grace_s=2.0,
        sweep_gap_s=2.0,
        stray_s=600.0,
        needs_mb=usual.needs_mb,
    )
    return place, backend


@dataclass
class Walk:
    """A stage on the cluster."""

    stage: Stage
    site: Site
    url: str

    @contextmanager
    def daemon(self, *, late_s: float = QUICK.late_s) -> Iterator[SlurmBackend]:
        """A daemon in this process."""
        place, backend = place_of(self.site)
        timing = Timing() if at_default_pace() else dataclasses.replace(QUICK, late_s=late_s)
        with running(Daemon(self.stage.store, [place], clock=self.stage.clock, timing=timing)):
            yield backend

    @contextmanager
    def killer(self) -> Iterator[Killer]:
        """Daemons in processes of their own, that die where they are told to."""
        root = Path(self.site.paths.shared_root)
        hand = Killer("tests.cluster.inside.walk", self.url, str(root / "site.toml"), root=root, checkout=REPOSITORY)
        try:
            yield hand
        finally:
            hand.close()

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

    def is_well(self, *, attempts: int = 1, claims: int | None = None) -> dict[str, Any]:
        """The one run passed, after so many attempts, claimed as often as jobs were really started; one verdict."""
        (run,) = self.wait_ended()
        assert (run["state"], run["verdict"]) == ("scored", "passed"), run
        assert run["attempts"] == attempts, self.attempts()
        assert self.verdicts() == 1
        assert self.claims() == (attempts if claims is None else claims)
        return run

    def gave_up(self, number: int = 1) -> str:
        """Why that attempt was given up, as the event says it to everybody who follows."""
        (row,) = self.stage.rows(
            "SELECT data ->> 'why' AS why FROM event"
            " WHERE kind IN ('run.requeued', 'run.failed') AND (data ->> 'attempt')::int = %s",
            number,
        )
        return str(row["why"])


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


def main(url: str, file: Path) -> None:
    """The daemons of `killer`."""
    zygote.main(lambda: zygote.serve(url, place_of(sites.load(file))[0], file.with_name("daemon.log"), QUICK))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
