"""Evaluating many sources: for research, and for training models. Verdicts come as they are known."""

from __future__ import annotations

import hashlib
import random
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar, get_args

from kbslurm.client.errors import LimitReached
from kbslurm.client.person_calls import PersonCalls
from kbslurm.client.public_calls import PublicCalls
from kbslurm.errors import BackendTrouble, Invalid, NotAccepting, NotFound

T = TypeVar("T")
Mode = Literal["test", "benchmark", "profile", "leaderboard"]
Source = str | bytes | tuple[str, str | bytes]

AT_ONCE = 64
PATIENCE_S = 3600.0
LONGEST_PAUSE_S = 60.0
QUICK_S, SLOW_S = 0.2, 2.0
# The oldest ones are asked about first, since they were sent first; of the others a few in turn.
FRONT, OTHERS = 2, 1


@dataclass(frozen=True, kw_only=True)
class GpuVerdict:
    """A source's verdict on one GPU type. `name` is passed, wrong, error, timeout, memory, violation or infrastructure
    (no report came, through no fault of the source), or cancelled. The times are in seconds, None unless it passed;
    `report` is the judge's, with public cases only."""

    gpu: str
    name: str
    reason: str
    score_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    report: Mapping[str, Any] | None = None

    @property
    def passed(self) -> bool:
        return self.name == "passed"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What became of one source. `name` is the source's own, or its digest. `refused`: why the service didn't take it,
    in which case there is no submission, or that the submission was deleted."""

    name: str
    submission_id: int | None
    runs: tuple[GpuVerdict, ...] = ()
    refused: str | None = None

    @property
    def passed(self) -> bool:
        """Whether it passed on every GPU type that it was sent to."""
        return bool(self.runs) and all(run.passed for run in self.runs)

    @property
    def score_s(self) -> float | None:
        """The time on its only GPU type; None if it didn't pass, or there are several."""
        return self.runs[0].score_s if len(self.runs) == 1 else None


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far an evaluation is. `pausing_s`: nothing is sent for that long, because of `why`."""

    sent: int
    done: int
    waiting: int
    pausing_s: float = 0.0
    why: str = ""


class Evaluating(PublicCalls, PersonCalls):
    """Calls for programs."""

    def evaluate(
        self,
        board: str,
        sources: Iterable[Source],
        *,
        key: str | None = None,
        mode: Mode = "benchmark",
        gpus: Sequence[str] = (),
        file_name: str = "submission.py",
        at_once: int = AT_ONCE,
        patience_s: float = PATIENCE_S,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> Iterator[Evaluation]:
        """Submit every source to a board and yield what became of each, in the order in which that is known.

        A source is its text, or a pair of a name of yours and the text. `sources` may be endless: at most `at_once`
        submissions are open at any time, and the next source is only drawn when there is room.

        `key` names the whole evaluation. A program that crashed and calls this again with the same key gets the
        verdicts of what it had sent, and sends only the rest: each source is sent with an idempotency key made of
        `key` and its name (its digest, without one). Without `key`, every call is a new evaluation, and only lost
        connections don't submit twice.

        Where the service is away, pauses submissions or says that a limit is reached, this waits, longer each time and
        as long as the service says; after `patience_s` seconds without an answer the error is raised. A source that
        the service refuses by itself (too large, say) is yielded as refused. What is wrong with all of them (no such
        board or GPU type, an unknown token) is raised at once.
        """
        if at_once < 1:
            raise Invalid(f"at_once must be at least 1, not {at_once}")
        if mode not in get_args(Mode):
            raise Invalid(f"there is no mode {mode!r}", hint=f"Choose one of: {', '.join(get_args(Mode))}.")
        known = self.board(board)
        for gpu in gpus:
            if gpu not in known.gpus:
                raise Invalid(f"board {known.name} has no GPU type {gpu!r}", hint=f"It has: {', '.join(known.gpus)}.")
        return _Run(self, known.name, key or uuid.uuid4().hex, mode, gpus, file_name, patience_s, on_progress).through(
            sources, at_once
        )


class _Run:
    """One evaluation under way."""

    def __init__(
        self,
        client: PersonCalls,
        board: str,
        key: str,
        mode: Mode,
        gpus: Sequence[str],
        file_name: str,
        patience_s: float,
        on_progress: Callable[[Progress], object] | None,
    ) -> None:
        self._client, self._board, self._key, self._mode = client, board, key, mode
        self._gpus, self._file_name, self._patience_s = gpus, file_name, patience_s
        self._on_progress = on_progress
        self._open: deque[tuple[str, int]] = deque()
        self._sent = self._done = 0
        self._looked_at = time.monotonic()

    def through(self, sources: Iterable[Source], at_once: int) -> Iterator[Evaluation]:
        drawn, more, pause_s = iter(sources), True, QUICK_S
        while more or self._open:
            while more and len(self._open) < at_once:
                source = next(drawn, None)
                if source is None:
                    more = False
                    break
                refused = self._send(source)
                if refused is not None:
                    self._done += 1
                    self._tell()
                    yield refused
                elif time.monotonic() > self._looked_at + SLOW_S:  # they needn't wait for the last to be sent
                    yield from self._ended()
            found = 0
            for evaluation in self._ended():
                found += 1
                yield evaluation
            if self._open and not found:
                time.sleep(pause_s)
                pause_s = min(SLOW_S, pause_s * 1.5)
            else:
                pause_s = QUICK_S

    def _send(self, source: Source) -> Evaluation | None:
        """Submit it; the evaluation if it was refused."""
        name, text = source if isinstance(source, tuple) else (None, source)
        data = text.encode() if isinstance(text, str) else text
        digest = hashlib.sha256(data).hexdigest()
        key = hashlib.sha256(f"{self._key}\n{self._board.lower()}\n{name or digest}".encode()).hexdigest()
        try:
            taken = self._patiently(
                lambda: self._client.submit_to_many(self._board, self._gpus, self._mode, self._file_name, data, key=key)
            )
        except Invalid as error:
            hint = f" {error.hint}" if error.hint else ""
            return Evaluation(name=name or digest, submission_id=None, refused=f"{error.message}{hint}")
        self._open.append((name or digest, taken.submission_id))
        self._sent += 1
        self._tell()
        return None

    def _ended(self) -> Iterator[Evaluation]:
        """Those that are over: from the oldest on, until some in a row aren't, and then a few others."""
        looked, in_a_row = 0, 0
        self._looked_at = time.monotonic()
        while self._open and in_a_row < FRONT and looked < len(self._open):
            found = self._look(looked)
            if found is None:
                looked, in_a_row = looked + 1, in_a_row + 1
            else:
                in_a_row = 0
                yield found
        for _ in range(min(OTHERS, len(self._open) - looked)):
            found = self._look(random.randrange(looked, len(self._open)))
            if found is not None:
                yield found
            if len(self._open) <= looked:
                return

    def _look(self, place: int) -> Evaluation | None:
        name, number = self._open[place]
        try:
            told = self._patiently(lambda: self._client.full_submission(number))["submission"]
        except NotFound:
            told = None
        if told is not None and not told["done"]:
            return None
        del self._open[place]
        self._done += 1
        self._tell()
        if told is None:
            return Evaluation(name=name, submission_id=number, refused=f"submission {number} was deleted")
        return Evaluation(name=name, submission_id=number, runs=tuple(_verdict(run) for run in told["runs"]))

    def _patiently(self, act: Callable[[], T]) -> T:
        """The answer, however often it takes: every call here may be made again."""
        until, pause_s = time.monotonic() + self._patience_s, 0.5
        while True:
            try:
                return act()
            except NotFound:
                raise
            except (BackendTrouble, NotAccepting, LimitReached) as error:
                wait_s = random.uniform(pause_s / 2, pause_s)
                if isinstance(error, LimitReached) and error.resets_at is not None:
                    wait_s = max(wait_s, (error.resets_at - datetime.now(UTC)).total_seconds())
                if time.monotonic() + wait_s > until:
                    raise
                self._tell(wait_s, error.message)
                time.sleep(wait_s)
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    def _tell(self, pausing_s: float = 0.0, why: str = "") -> None:
        if self._on_progress is not None:
            waiting = len(self._open)
            self._on_progress(Progress(sent=self._sent, done=self._done, waiting=waiting, pausing_s=pausing_s, why=why))


def _verdict(run: Mapping[str, Any]) -> GpuVerdict:
    found = run["verdict"]
    if found is None:
        return GpuVerdict(gpu=run["gpu"], name=run["standing"], reason=run["reason"])
    passed = found["name"] == "passed"
    return GpuVerdict(
        gpu=run["gpu"],
        name=found["name"],
        reason=found["reason"],
        score_s=found["score_s"] if passed else None,
        low_s=found["low_s"] if passed else None,
        high_s=found["high_s"] if passed else None,
        report=found["report"],
    )
