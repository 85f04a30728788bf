"""A stage whose runs go into keepers on a Slurm that is a folder, and a hand that kills daemons, keepers and steps."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbslurm.daemon.clock import WallClock
from kbslurm.domain.keepers import Keeper, KeeperState
from kbslurm.domain.run import is_step
from kbslurm.errors import BackendTrouble
from tests.chaos.history import check
from tests.chaos.killing import Killer
from tests.chaos.zygote import GPU
from tests.chaos.zygote_warm import furnish
from tests.flow.stage import PATIENCE_S, Stage


@dataclass
class WarmArena:
    """What a test of warm runs has in hand."""

    stage: Stage
    hand: Killer
    root: Path

    def order(self) -> None:
        """Ask for one more keeper."""
        made = self.stage.store.keepers.order(
            "folder", GPU, life_s=3600, idle_s=600, most=3, why="a test", now=self.stage.clock.now(), by="host"
        )
        assert made is not None

    def holding(self) -> Sequence[Keeper]:
        return [one for one in self.stage.store.keepers.open() if one.state is KeeperState.HOLDING]

    def wait_holding(self, count: int) -> None:
        def are_so_many() -> bool:
            try:
                return len(self.holding()) == count
            except BackendTrouble:  # the database is under attack
                return False

        self.stage.wait_until(are_so_many)

    def submit(self, words: str, by: str = "ada") -> int:
        return self.stage.submit(f"# {words}\n", by=by, mode="leaderboard").submission_id

    def die(self, place: str) -> None:
        self.hand.start(place)
        assert self.hand.died_at_its_crash_point(), (place, self.hand.log()[-3000:])

    def finish(self) -> None:
        """The daemon ends in good order once every run has, and the history holds."""
        self.stage.wait_until(lambda: self.stage.open_runs() == 0)
        status = self.hand.end(signal.SIGTERM)
        assert status == 0, self.hand.log()[-3000:]
        assert "Traceback" not in self.hand.log()
        self.check()

    def check(self) -> None:
        """The laws, and those of keepers: each was sent once, and its script ran at most once."""
        check(self.stage, self.root / "attempts")
        sent = [file.read_text().split() for file in (self.root / "slurm" / "names").glob("kbk-*")]
        assert all(len(jobs) == 1 for jobs in sent), sent

    def wait_file(self, file: Path) -> None:
        """For a file that a job writes, whatever becomes of the database meanwhile."""
        until = time.monotonic() + PATIENCE_S
        while not file.exists():
            assert time.monotonic() < until, f"{file.name} never came"
            time.sleep(0.05)

    def attempts(self) -> list[dict[str, Any]]:
        return self.stage.rows("SELECT * FROM attempt ORDER BY id")

    def warm_runs(self) -> int:
        """How many attempts ran as a step of a keeper."""
        return sum(is_step(row["handle"] or "") and row["state"] == "reported" for row in self.attempts())

    def scancel(self, *arguments: str) -> None:
        subprocess.run([self.root / "bin" / "scancel", *arguments], check=True)

    def kill_script(self, job: str) -> None:
        """Its script dies without a word; what is left of its job goes with it."""
        self._kill(job, f"{self.root}/slurm/jobs/{job}/script\0")

    def kill_srun(self, job: str) -> None:
        """The step that it started lives on."""
        self._kill(job, "/standin_slurm.sh\0srun\0")

    def _kill(self, job: str, words: str) -> None:
        mine = f"STANDIN_JOB={self.root}/slurm/jobs/{job}\0".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mine in (folder / "environ").read_bytes() and words.encode() in (folder / "cmdline").read_bytes():
                    os.kill(int(folder.name), signal.SIGKILL)

    def end_all_jobs(self) -> None:
        """No keeper and no harness of this folder lives on."""
        jobs = self.root / "slurm" / "jobs"
        running = [one.parent.name for one in jobs.glob("*/state") if one.read_text() == "RUNNING\n"]
        if running:
            self.scancel(*running)
        until = time.monotonic() + 60
        while any((jobs / one / "state").read_text() == "RUNNING\n" for one in running):
            assert time.monotonic() < until, "a job outlives its test"
            time.sleep(0.05)


@contextmanager
def warm_arena(url: str, root: Path, checkout: Path) -> Iterator[WarmArena]:
    """Over a database with the schema."""
    furnish(root)
    stage = Stage.build(url, clock=WallClock())
    hand = Killer("tests.chaos.zygote_warm", url, str(root), root=root, checkout=checkout)
    arena = WarmArena(stage=stage, hand=hand, root=root)
    try:
        yield arena
    finally:
        hand.close()
        arena.end_all_jobs()
        stage.close()
