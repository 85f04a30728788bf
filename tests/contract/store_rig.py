"""A store with people, a board and a clock in the hand: what every test of the Store contract begins with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

from kbslurm.domain.problem import Problem
from kbslurm.domain.run import Ending, Handle, OpenAttempt, PersonId, RunState, Seen, Sighting, Slot
from kbslurm.domain.verdict import Verdict
from kbslurm.ports import NewSubmission, Receipt
from kbslurm.store.postgres import PostgresStore
from kbslurm.store.views import Board
from kbslurm_eval.shared.wire import Mode

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HELLO = Problem(name="hello", files={"reference.py": "pass"}, tests=({"n": 1},), benchmarks=({"n": 2},))
PASSED = Verdict(
    name="passed", reason="", score_s=2e-3, low_s=1e-3, high_s=3e-3, isolation=2, ranked=True, detail={"log": ""}
)
WRONG = Verdict(name="wrong", reason="test 0 differs", detail={"log": "x"})


@dataclass
class Rig:
    """The hand that moves the rows."""

    store: PostgresStore
    board: Board
    now: datetime = START
    people: dict[str, PersonId] = field(default_factory=dict)

    @classmethod
    def on(cls, store: PostgresStore, gpus: Sequence[str] = ("H100", "A100")) -> Rig:
        return cls(store=store, board=store.boards.add("main", HELLO, gpus=gpus, confirm=False, now=START))

    def later(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now

    def person(self, name: str) -> PersonId:
        if name not in self.people:
            self.people[name] = self.store.people.ensure(name, now=self.now).id
        return self.people[name]

    def new(
        self, who: str = "ada", gpus: Sequence[str] = ("H100",), *, mode: Mode = "leaderboard", **more: Any
    ) -> NewSubmission:
        told: dict[str, Any] = {
            "person_id": self.person(who),
            "board_id": self.board.id,
            "problem_version_id": self.board.problem_version_id,
            "mode": mode,
            "file_name": "kernel.py",
            "source": "x = 1",
            "source_sha256": hashlib.sha256(b"x = 1").hexdigest(),
            "gpus": tuple(gpus),
            "secret_seed": "5eed",
            "cost_s": 60.0,
        }
        return NewSubmission(**{**told, **more})

    def accept(self, who: str = "ada", gpus: Sequence[str] = ("H100",), **more: Any) -> Receipt:
        return self.store.intake.accept(self.new(who, gpus, **more), self.now)

    def claim(self, *gpus: str) -> OpenAttempt | None:
        return self.store.queue.claim(slots(*(gpus or ("H100",))), self.now)

    def claimed(self, *gpus: str) -> OpenAttempt:
        found = self.claim(*gpus)
        assert found is not None
        return found

    def launched(self, *gpus: str) -> OpenAttempt:
        attempt = self.claimed(*gpus)
        assert self.store.attempts.note_handle(attempt, Handle("17"), self.now + timedelta(hours=1), self.now)
        return attempt

    def running(self, *gpus: str, node: str = "node1") -> OpenAttempt:
        attempt = self.launched(*gpus)
        assert self.store.attempts.note_seen(attempt, Sighting(seen=Seen.RUNNING, node=node), self.now)
        return attempt

    def score(self, attempt: OpenAttempt, verdict: Verdict = PASSED, ending: Ending = Ending.REPORTED) -> bool:
        return self.store.scores.record(attempt, verdict, ending, self.now, telemetry={"host": {"name": "n"}})

    def give_up(self, attempt: OpenAttempt, ending: Ending = Ending.NODE_FAILURE) -> RunState | None:
        return self.store.attempts.give_up(attempt, ending, "it died", self.now)

    def refuse(self, attempt: OpenAttempt, *elsewhere: str) -> RunState | None:
        return self.store.attempts.give_up(attempt, Ending.REFUSED, "never here", self.now, elsewhere=elsewhere)

    def rows(self, statement: str) -> list[dict[str, Any]]:
        """A look that goes round the store."""
        return [dict(row) for row in self.store._all(statement)]

    def everything(self) -> dict[str, list[dict[str, Any]]]:
        """All rows of the walk, to prove that nothing was changed."""
        tables = ("submission", "run", "attempt", "verdict", "stale_report", "event")
        return {name: self.rows(f"SELECT * FROM {name} ORDER BY 1") for name in tables}


def slots(*gpus: str, backend: str = "local") -> list[Slot]:
    return [Slot(backend=backend, gpu=gpu, free=1) for gpu in gpus]


def at_once(jobs: Sequence[Callable[[], object]]) -> None:
    """Run them in threads of their own; the first exception of any of them is raised here."""
    failed: list[BaseException] = []

    def guarded(job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "it hangs"
    if failed:
        raise failed[0]
