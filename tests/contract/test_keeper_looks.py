"""What is read from a scheduler's answer about keepers: an answer is as old as it is, and files are newer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbslurm.backends.slurm.job_lookup import JobRows, SchedulerAnswers
from kbslurm.backends.slurm.reader import JobRow
from kbslurm.backends.slurm.warm.keeper_jobs import KeeperJobs
from kbslurm.backends.slurm.warm.pulse import SILENT_S, Pulse
from kbslurm.domain.keepers import Keeper, KeeperEnding, KeeperSighting, KeeperState
from kbslurm.domain.run import Handle, KeeperId, KeeperName, Seen

NAME = KeeperName("kbk-abcdefghijklmnopqrstuvwxyz")


class Scene:
    """A keeper's folder, and a scheduler that says `state` of its job when it is asked, which isn't at every look."""

    def __init__(self, root: Path) -> None:
        self.state, self.due, self.at_s = "PENDING", True, 0.0
        self.pulse = Pulse(lambda: self.at_s, 0.0)
        self.jobs = KeeperJobs(
            SimpleNamespace(name="here", slurm=SimpleNamespace(accounting=False)),  # type: ignore[arg-type]
            root,
            self.pulse,
            pace=SimpleNamespace(may_look=lambda: self.due, is_resting=lambda: False, has_room=lambda calls=1: True),  # type: ignore[arg-type]
            commands=None,  # type: ignore[arg-type]
            lookup=SimpleNamespace(by_id=self.answers, by_name=self.answers),  # type: ignore[arg-type]
            watcher=SimpleNamespace(named=lambda name: [self.row()]),  # type: ignore[arg-type]
            is_denied=lambda name, handle: True,
            shared="",
        )
        self.folder = self.jobs.folder(NAME)
        assert self.folder.create()
        self.beats = 0
        self.meanwhile: Callable[[], None] = lambda: None

    def row(self) -> JobRow:
        return JobRow(id="7", name=NAME, state=self.state)

    def answers(self, *_: Any) -> SchedulerAnswers:
        rows = JobRows(by_id={"7": self.row()}, complete=True)
        self.meanwhile()
        return SchedulerAnswers(queue=rows, past=None, accounting=False)

    def begins(self) -> None:
        """Its script runs: it claims, and says that it lives."""
        self.folder.paths.claim.mkdir(exist_ok=True)
        (self.folder.paths.claim / "job").write_text("7\n")
        self.lives()

    def lives(self) -> None:
        self.beats += 1
        self.folder.beat.write_text(f'{{"served": 0, "idle_s": {self.beats}}}')

    def seen(self, *, due: bool) -> KeeperSighting | None:
        """What a look shows; `due`: whether the scheduler may be asked again."""
        self.due = due
        now = datetime.now(UTC)
        keeper = Keeper(
            id=KeeperId(1),
            name=NAME,
            backend="here",
            gpu="H100",
            state=KeeperState.SUBMITTED,
            life_s=3600.0,
            idle_s=300.0,
            opened_at=now,
            why="a test",
            handle=Handle("7"),
        )
        found: Collection[KeeperSighting] = self.jobs.watch([keeper]).values()
        return next(iter(found), None)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "keepers")


def test_a_row_from_before_it_began_does_not_say_that_it_was_requeued(scene: Scene) -> None:
    """It was preempted before the scheduler was asked again: the last answer still has it in the queue."""
    waits = scene.seen(due=True)
    assert waits is not None and waits.seen is Seen.WAITING
    scene.begins()
    runs = scene.seen(due=False)
    assert runs is not None and runs.seen is Seen.RUNNING, "by its files"
    scene.at_s += 2 * SILENT_S
    scene.state = "PREEMPTED"
    assert scene.seen(due=False) is None, "nothing new is known of it"
    ended = scene.seen(due=True)
    assert ended is not None and ended.ending is KeeperEnding.PREEMPTED


def test_one_that_begins_while_the_scheduler_is_asked_lives(scene: Scene) -> None:
    def begins_in_silence() -> None:
        scene.begins()
        scene.folder.beat.unlink()

    scene.meanwhile = begins_in_silence
    assert scene.seen(due=True) is None
    scene.meanwhile = lambda: None
    scene.state = "RUNNING"
    scene.lives()
    runs = scene.seen(due=True)
    assert runs is not None and runs.seen is Seen.RUNNING


def test_one_that_is_in_the_queue_again_is_over(scene: Scene) -> None:
    scene.begins()
    assert scene.seen(due=True) is not None
    scene.at_s += 2 * SILENT_S
    ended = scene.seen(due=True)
    assert ended is not None and ended.ending is KeeperEnding.CANCELLED
    assert "requeued from outside" in ended.reason


def test_the_same_holds_where_it_is_looked_for_by_its_name(scene: Scene) -> None:
    def begins_in_silence() -> None:
        scene.begins()
        scene.folder.beat.unlink()

    scene.meanwhile = begins_in_silence
    assert scene.jobs.find(NAME).seen is Seen.UNKNOWN
    scene.meanwhile = lambda: None
    assert scene.jobs.find(NAME).ending is KeeperEnding.CANCELLED
