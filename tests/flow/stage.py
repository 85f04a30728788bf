"""A stage for the walk: a fresh database, people, a board, and what the rows came to."""

from __future__ import annotations

import io
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row

from kbslurm.daemon.loop import Daemon
from kbslurm.daemon.timing import Timing
from kbslurm.domain.problem import Problem
from kbslurm.domain.run import OpenAttempt, PersonId, SubmissionId
from kbslurm.errors import BackendTrouble
from kbslurm.flow.place import Place
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.submit import accept
from kbslurm.observe import logs
from kbslurm.ports import Clock, Receipt
from kbslurm.store.postgres import PostgresStore
from kbslurm_eval.shared.wire import Mode

START = datetime(2026, 5, 1, 12, tzinfo=UTC)
PATIENCE_S = 180.0
QUICK = Timing(lease_s=3.0, idle_s=1.0, event_wait_s=0.2, database_back_off_s=0.05)
ADD = """
def custom_kernel(data):
    return data
"""
PROBLEM = Problem(
    name="identity",
    files={"reference.py": "def generate_input(seed):\n    return seed\n"},
    tests=({"seed": 1},),
    benchmarks=({"seed": 2},),
)


@dataclass
class HandClock:
    """A clock that goes when it is told to."""

    at: datetime = START

    def now(self) -> datetime:
        return self.at

    def go(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass
class Stage:
    """A database with one board, `board`, and whoever is asked for."""

    url: str
    store: PostgresStore
    clock: Clock
    people: dict[str, PersonId] = field(default_factory=dict)
    board_name: str = "board"

    @classmethod
    def build(
        cls,
        url: str,
        *,
        problem: Problem = PROBLEM,
        gpus: Sequence[str] = ("A100",),
        clock: Clock | None = None,
        deadline_at: datetime | None = None,
        board: str = "board",
        confirm: bool = False,
    ) -> Stage:
        stage = cls(url=url, store=PostgresStore(url), clock=clock or HandClock(), board_name=board)
        now = stage.clock.now()
        stage.store.boards.add(board, problem, gpus=gpus, deadline_at=deadline_at, confirm=confirm, now=now)
        return stage

    def person(self, name: str = "ada", *, staff: bool = False) -> PersonId:
        if name not in self.people:
            person = self.store.people.add(name, role="staff" if staff else "participant", now=self.clock.now())
            self.people[name] = person.id
        return self.people[name]

    def submit(
        self,
        text: str = ADD,
        *,
        by: str = "ada",
        mode: Mode = "test",
        gpus: Sequence[str] = (),
        file_name: str = "submission.py",
    ) -> Receipt:
        return accept(
            self.store.intake, self.person(by), self.board_name, file_name, text, mode, gpus, self.clock.now()
        )

    def claim(self, *places: Place) -> OpenAttempt:
        """The next attempt, which must be there."""
        capacity = {place.name: place.backend.capacity() for place in places}
        attempt = claim(self.store.queue, free_slots(capacity, self.store.attempts.open()), self.clock.now())
        assert attempt is not None
        return attempt

    def attempt(self, number: int = 0) -> OpenAttempt:
        """The open attempt as the rows have it now."""
        return self.store.attempts.open()[number]

    def rows(self, statement: str, *told: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, row_factory=dict_row, autocommit=True) as connection:
            return connection.execute(statement.encode(), told).fetchall()

    def runs(self) -> list[dict[str, Any]]:
        """Every run with its verdict, in order."""
        return self.rows(
            "SELECT run.*, v.name AS verdict, v.score_s, v.ranked, v.reason AS verdict_reason"
            " FROM run LEFT JOIN verdict v ON v.run_id = run.id ORDER BY run.id"
        )

    def run(self) -> dict[str, Any]:
        (only,) = self.runs()
        return only

    def open_runs(self, submission: SubmissionId | None = None) -> int:
        which = "" if submission is None else f" AND submission_id = {int(submission)}"
        (found,) = self.rows(f"SELECT count(*) AS n FROM run WHERE ended_at IS NULL{which}")
        return int(found["n"])

    def wait_until(self, is_so: Callable[[], bool], *, patience_s: float = PATIENCE_S) -> None:
        """Return when it is so; looks whenever something happened in the rows."""
        until = time.monotonic() + patience_s
        while not is_so():
            assert time.monotonic() < until, f"it never came to be so; the runs: {self.runs()}"
            try:
                self.store.events.wait(0.25)
            except BackendTrouble:  # the database is under attack
                threading.Event().wait(0.1)

    def close(self) -> None:
        self.store.close()


@contextmanager
def running(daemon: Daemon, *, once: bool = False) -> Iterator[threading.Thread]:
    """The daemon in a thread of its own, stopped at the end."""
    stop = threading.Event()
    thread = threading.Thread(target=daemon.run, args=(stop,), kwargs={"once": once}, name="daemon")
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join(timeout=120)
        assert not thread.is_alive()


@contextmanager
def overheard(*, as_json: bool = False) -> Iterator[io.StringIO]:
    """What the rooms tell, as their log would have it."""
    logger = logging.getLogger(logs.ROOT)
    others = logging.getLogger()
    before = (list(logger.handlers), logger.level, logger.propagate, list(others.handlers))
    told = io.StringIO()
    logs.set_up(as_json=as_json, stream=told)
    try:
        yield told
    finally:
        logger.handlers[:], logger.propagate, others.handlers[:] = before[0], before[2], before[3]
        logger.setLevel(before[1])
