"""Who leads while a configuration is reloaded: a slow one costs no lead, and a standby stays where the attempts are."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from kbslurm.daemon.clock import WallClock
from kbslurm.daemon.loop import LEASE, Daemon
from kbslurm.daemon.reload_step import Configured
from kbslurm.daemon.timing import Timing
from tests.chaos.history import check
from tests.flow.stage import Stage, running
from tests.flow.test_overflow import Worker
from tests.flow.test_place_reload import Reread, place

QUICK = Timing(lease_s=2.0)


@dataclass
class SlowReread(Reread):
    """One whose secrets' command hangs until `gate` is set, or fails in a way that nobody expected."""

    began: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event = field(default_factory=threading.Event)
    bug: bool = False

    def __call__(self) -> Configured:
        self.began.set()
        self.gate.wait(60)
        if self.bug:
            raise RuntimeError("a bug")
        return super().__call__()


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    built = Stage.build(database_url, gpus=("A100",), clock=WallClock())
    yield built
    built.close()


def beat_at(stage: Stage) -> datetime:
    return next(line.beat_at for line in stage.store.leases.all() if line.name == LEASE)


def test_a_slow_reload_costs_no_lead_and_is_taken_when_it_is_read(stage: Stage) -> None:
    worker, beside = Worker(stage.store, "here"), Worker(stage.store, "here")
    said = SlowReread([place(worker, "2")])
    leads = Daemon(stage.store, [place(worker)], reread=said, timing=QUICK, holder="a")
    stands_by = Daemon(stage.store, [place(beside)], timing=QUICK, holder="b")
    with running(leads):
        stage.wait_until(lambda: leads.leading is True)
        with running(stands_by):
            stage.wait_until(lambda: stands_by.leading is False)
            leads.reload()
            stage.wait_until(said.began.is_set)
            long_after = beat_at(stage) + timedelta(seconds=3 * QUICK.lease_s)
            stage.submit()
            stage.wait_until(lambda: stage.open_runs() == 0)
            stage.wait_until(lambda: beat_at(stage) > long_after)
            assert (leads.leading, stands_by.leading) == (True, False)
            assert leads.reloading.told() == {}
            said.gate.set()
            stage.wait_until(lambda: leads.reloading.told().get("changes") == ["here changed"])
    assert (len(worker.submitted), len(beside.submitted)) == (1, 0)


def test_one_who_asks_meanwhile_has_it_read_once_more(stage: Stage) -> None:
    worker, other = Worker(stage.store, "here"), Worker(stage.store, "other")
    said = SlowReread([place(worker)])
    daemon = Daemon(stage.store, said.places, reread=said)
    with running(daemon):
        daemon.reload()
        stage.wait_until(said.began.is_set)
        said.began.clear()
        daemon.reload()
        said.gate.set()
        stage.wait_until(said.began.is_set)
        said.places = [place(worker), place(other)]
        daemon.reload()
        stage.wait_until(lambda: list(daemon.lanes) == ["here", "other"])


def test_a_bug_while_reading_ends_nothing(stage: Stage) -> None:
    worker = Worker(stage.store, "here")
    said = SlowReread([place(worker)], bug=True)
    said.gate.set()
    daemon = Daemon(stage.store, [place(worker)], reread=said)
    with running(daemon):
        daemon.reload()
        stage.wait_until(said.began.is_set)
        said.bug = False
        stage.wait_until(lambda: not daemon.reloading.busy)
        daemon.reload()
        stage.wait_until(lambda: daemon.reloading.told().get("ok") is True)
        stage.submit()
        stage.wait_until(lambda: stage.open_runs() == 0)


class Folder(Worker):
    """A place in a folder, with one slot."""

    def __init__(self, stage: Stage, folder: str, same: Worker | None = None) -> None:
        super().__init__(stage.store, "here", slots=1)
        self.queues = True
        self.place = place(self, folder, folder)
        if same is not None:  # another daemon's view of it
            self.sightings, self.reports = same.sightings, same.reports


@dataclass
class Pair:
    """A leader and a standby of one configuration, in which the place moves from the old folder to the new one."""

    stage: Stage

    def __post_init__(self) -> None:
        self.old, self.new = Folder(self.stage, "old"), Folder(self.stage, "new")
        self.old_beside, self.new_beside = Folder(self.stage, "old", self.old), Folder(self.stage, "new", self.new)
        self.said = [Reread([self.old.place]), Reread([self.old_beside.place])]
        self.leads, self.stands_by = (
            Daemon(self.stage.store, one.places, reread=one, timing=QUICK, holder=holder)
            for one, holder in zip(self.said, ("a", "b"), strict=True)
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[contextlib.ExitStack]:
        """Both; the leader stops when what is yielded is closed."""
        with contextlib.ExitStack() as leader:
            leader.enter_context(running(self.leads))
            self.stage.wait_until(lambda: self.leads.leading is True)
            with running(self.stands_by):
                self.stage.wait_until(lambda: self.stands_by.leading is False)
                yield leader

    def move(self) -> None:
        """Have both read that the place is in the new folder."""
        self.said[0].places, self.said[1].places = [self.new.place], [self.new_beside.place]
        for daemon in (self.leads, self.stands_by):
            daemon.reload()
        self.stage.wait_until(lambda: bool(self.leads.reloading.told()) and bool(self.stands_by.reloading.told()))

    def homes(self) -> tuple[str, str]:
        return self.leads.lanes["here"].place.home, self.stands_by.lanes["here"].place.home

    def attempts(self) -> list[int]:
        return [int(row["n"]) for row in self.stage.rows("SELECT count(*) AS n FROM attempt GROUP BY run_id")]


def test_a_standby_that_takes_over_looks_in_the_folder_that_the_open_attempt_is_in(stage: Stage) -> None:
    pair = Pair(stage)
    with pair.running() as leader:
        stage.submit()
        stage.wait_until(lambda: len(pair.old.submitted) == 1)
        pair.move()
        stood_by_since = pair.stands_by._known_at
        stage.wait_until(lambda: pair.stands_by._known_at > stood_by_since + timedelta(seconds=QUICK.lease_s))
        assert pair.homes() == ("old", "old")
        leader.close()
        stage.wait_until(lambda: pair.stands_by.leading is True)
        pair.old_beside.begin()
        stage.wait_until(lambda: stage.open_runs() == 0)
        stage.wait_until(lambda: pair.homes()[1] == "new")
    assert (pair.attempts(), pair.new_beside.submitted) == ([1], [])
    check(stage)


def test_a_standby_follows_the_leader_into_the_new_folder(stage: Stage) -> None:
    pair = Pair(stage)
    with pair.running() as leader:
        pair.move()
        stage.wait_until(lambda: pair.homes() == ("new", "new"))
        stage.submit()
        stage.wait_until(lambda: len(pair.new.submitted) == 1)
        leader.close()
        stage.wait_until(lambda: pair.stands_by.leading is True)
        pair.new_beside.begin()
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert (pair.attempts(), pair.old_beside.calls) == ([1], [])
    check(stage)


def test_nothing_is_claimed_for_a_new_folder_before_a_standby_can_know_of_it(stage: Stage) -> None:
    pair = Pair(stage)
    daemon = pair.leads

    def home() -> str:
        return str(stage.store.leases.told(LEASE)["places"]["here"]["home"])

    def ticks_until(is_so: Callable[[], bool]) -> None:
        stage.wait_until(lambda: bool(daemon.tick()) and is_so())

    stage.submit()
    ticks_until(lambda: len(pair.old.submitted) == 1)
    pair.said[0].places = [pair.new.place]
    daemon.reload()
    ticks_until(lambda: bool(daemon.reloading.told()))
    stage.submit()
    pair.old.begin()
    ticks_until(lambda: pair.homes()[0] == "new")
    assert (home(), stage.store.attempts.open()) == ("old", [])
    ticks_until(lambda: len(pair.new.submitted) == 1)
    assert home() == "new"
    pair.new.begin()
    ticks_until(lambda: stage.open_runs() == 0)
    over = threading.Event()
    over.set()
    daemon.run(over)
