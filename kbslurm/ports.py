"""The ports: what the rooms need of the world. Each fits on a screen; the docstring is the law for every adapter."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from kbslurm.domain.breaker import Breaker, Outcomes
from kbslurm.domain.drift import Ranked
from kbslurm.domain.intake import Admission, Basis
from kbslurm.domain.measure import Yardstick
from kbslurm.domain.placement import Backlog, Rules
from kbslurm.domain.run import (
    AttemptId,
    Ending,
    EventId,
    Handle,
    JobName,
    OpenAttempt,
    PersonId,
    RunId,
    RunState,
    Sighting,
    Slot,
    SubmissionId,
    Work,
)
from kbslurm.domain.verdict import Verdict
from kbslurm_eval.shared.wire import Mode


class Clock(Protocol):
    """Now, always aware and in UTC."""

    def now(self) -> datetime: ...


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """One job as it will run: texts and limits only. `script` is the rendered job script where one is wanted."""

    name: JobName
    gpu: str
    manifest: str
    key: bytes
    time_limit_s: float
    memory_bytes: int
    directory: Path | None = None
    script: str | None = None


class Backend(Protocol):
    """A place that runs jobs. It holds no state in memory that matters: a new process finds all it needs by name.

    Every method may raise BackendTrouble; nothing else is expected of it. No method waits for a job.
    """

    name: str

    def capacity(self) -> Mapping[str, int]:
        """How many attempts may be open at once, by GPU type. Asks nobody: it is configuration."""

    def submit(self, job: JobSpec) -> Handle:
        """Start it. BackendRefused: certainly not started. BackendUnclear, or any other end: perhaps started.

        Called again with the same name and directory it starts nothing twice: an attempt runs at most once.
        """

    def find(self, name: JobName) -> Sighting:
        """Look in every source for a job of this name. ABSENT only when each source answered and none knows it."""

    def poll(self, attempts: Sequence[OpenAttempt]) -> Mapping[JobName, Sighting]:
        """One batched look at many. What isn't in the answer, or is UNKNOWN, changes nothing (law 4)."""

    def collect(self, attempt: OpenAttempt) -> bytes | None:
        """The sealed report, size-capped, or None while there is none. Never parsed here."""

    def cancel(self, attempt: OpenAttempt) -> None:
        """End it and all that it started, if it runs; keep it from starting, if it doesn't. Twice is fine.

        BackendRefused: not now, it is to be asked again.
        """


@runtime_checkable
class LeavesArtifacts(Protocol):
    """A backend that brings back the files of a profile, too."""

    def artifacts(self, attempt: OpenAttempt, names: Sequence[str]) -> Mapping[str, bytes]:
        """Those of these files that are there, each size-capped. Never looked into here."""


@runtime_checkable
class TellsProgress(Protocol):
    """A backend whose running jobs say how far they are."""

    def progress(self, attempt: OpenAttempt) -> Mapping[str, Any] | None:
        """What the job last said of itself, unchecked: for the eye only. None when nothing is known. Never raises."""


@runtime_checkable
class Foresees(Protocol):
    """A backend that can be asked when it would start a job that it hasn't been sent."""

    def foresee(self, script: str) -> datetime | None:
        """When it would start a job of this script, were it sent now; None where it doesn't say. Starts nothing, costs
        a call, and never raises: what isn't known is just not known."""


@runtime_checkable
class RingsDoorbell(Protocol):
    """A backend whose jobs ring when they start and end, so that they are looked at at once."""

    def doorbell(self) -> int | None:
        """A descriptor that can be read from when one has rung; None where there is none. It stays the backend's."""


@runtime_checkable
class PrunesFiles(Protocol):
    """A backend that keeps files of attempts that ended."""

    def prune(self, before: datetime, *, keep: Collection[JobName]) -> int:
        """Remove those of attempts that ended before, but for these: of how many."""


@dataclass(frozen=True, kw_only=True)
class PaceReport:
    """What `kbslurm status` shows of how often a scheduler is asked."""

    calls: int
    interval_s: float
    budget_left: float
    failing: int
    slow: bool


@runtime_checkable
class TellsPace(Protocol):
    """A backend that asks a scheduler, within a budget of calls."""

    def pace_report(self) -> PaceReport: ...


@runtime_checkable
class Closes(Protocol):
    """A backend that holds connections or descriptors."""

    def close(self) -> None:
        """Let go of them. What runs goes on running."""


@dataclass(frozen=True, kw_only=True)
class NewSubmission:
    """What a person did, checked and ready to become rows. `place`: its runs go there and nowhere else."""

    person_id: PersonId
    board_id: int
    problem_version_id: int
    mode: Mode
    file_name: str
    source: str
    source_sha256: str
    gpus: tuple[str, ...]
    secret_seed: str
    cost_s: float
    by_staff: bool = False
    via: str = "cli"
    place: str | None = None
    basis: Basis | None = None


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """A submission that will not be lost any more."""

    submission_id: SubmissionId
    run_ids: tuple[RunId, ...]
    accepted_at: datetime


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happened. `kind` is like `run.scored`, `subject` like `run:12`; data never holds a secret."""

    id: EventId
    kind: str
    subject: str
    data: Mapping[str, Any]
    at: datetime


class Intake(Protocol):
    """Taking submissions. Like every method of the store, each is one transaction, all or nothing, event included."""

    def admission(self, person: PersonId, board: str, mode: Mode = "test") -> Admission:
        """What accept must know of this person and board, in one read. NotFound names the boards that there are."""

    def accept(self, new: NewSubmission, now: datetime) -> Receipt: ...


class Submissions(Protocol):
    """Submissions that are taken back."""

    def cancel(self, submission: SubmissionId, by: PersonId | None, now: datetime) -> Sequence[OpenAttempt]:
        """Queued runs end at once; for the others the open attempts are marked (`cancel_at`) and returned.

        Refused unless `by` owns the submission or is staff; None is the service itself. NotFound when there is none.
        """

    def take_back(self, submission: SubmissionId, by: str, now: datetime, person: PersonId | None = None) -> None:
        """Off every list, and without its source. Its open runs are cancelled by `cancel`, not by this."""


class Queue(Protocol):
    """The runs that wait."""

    def claim(self, slots: Sequence[Slot], now: datetime, *, rules: Rules | None = None) -> OpenAttempt | None:
        """Give the fairest waiting run that fits a slot its next attempt (state INTENT), or None. SKIP LOCKED.

        A run doesn't fit where it wants more GPUs than one run may have there, nor where it was refused before, nor,
        when it was ordered to one place, at any other. With `rules` the slots' conditions hold, too, and what it may
        cost at most must fit into the month's budget, what is open counted at its most."""

    def waiting(self) -> Mapping[str, int]:
        """How many runs are queued, by GPU type."""

    def demand(self, now: datetime) -> Backlog:
        """What the placement policy must know of all that waits, and of the month's money, in one look."""

    def next_up(self, gpu: str, backend: str, now: datetime) -> Work | None:
        """The fairest run that waits for this GPU type and may go there, as if it had an attempt there. Claims nothing;
        there is no secret in it."""


class Attempts(Protocol):
    """Attempts from their claim to their end. Fence: (attempt, number).

    False from a method that returns bool means: the attempt is no longer the run's, nothing was changed.
    """

    def work(self, attempt: AttemptId) -> Work: ...
    def open(self) -> Sequence[OpenAttempt]: ...
    def lately_dead(self, since: datetime) -> Sequence[OpenAttempt]:
        """Attempts that ran, were given up after this moment, and whose report may still come, as evidence only."""

    def note_handle(self, attempt: OpenAttempt, handle: Handle, deadline_at: datetime, now: datetime) -> bool: ...
    def note_ambiguous(self, attempt: OpenAttempt, why: str, now: datetime) -> bool: ...
    def note_clean_sweep(self, attempt: OpenAttempt, now: datetime) -> bool: ...
    def note_resend(self, attempt: OpenAttempt, now: datetime) -> bool:
        """The same attempt is sent again (same number, name, directory): back to INTENT, sweeps forgotten."""

    def note_seen(self, attempt: OpenAttempt, sighting: Sighting, now: datetime) -> bool: ...
    def note_told(self, told: Mapping[AttemptId, Mapping[str, Any]]) -> None:
        """What open attempts were heard to say, beside what is known of them, in one go. For the eye: not fenced."""

    def put_off_deadlines(self, by_s: float) -> int:
        """Give every open attempt so much more time; how many there were. For time that only the clock has seen."""

    def withdraw(self, attempt: OpenAttempt, slots: Sequence[Slot], why: str, now: datetime) -> bool:
        """Want it back where one of these slots fits its run: its end is asked for until it is proved or it began."""

    def give_up(
        self, attempt: OpenAttempt, ending: Ending, why: str, now: datetime, *, elsewhere: Sequence[str] = ()
    ) -> RunState | None:
        """Close the attempt; the run goes back to QUEUED or, when no retry is owed, FAILED with verdict infrastructure.

        One is also owed while a backend of `elsewhere` hasn't refused this run.
        None: the attempt is no longer the run's. A run with `cancel_at` isn't queued again: it ends CANCELLED.
        """

    def end_cancelled(self, attempt: OpenAttempt, now: datetime) -> bool: ...
    def keep_stale(self, attempt: OpenAttempt, report: bytes, why: str, now: datetime) -> None: ...


class Scores(Protocol):
    """Verdicts: one per run, ever."""

    def record(
        self,
        attempt: OpenAttempt,
        verdict: Verdict,
        ending: Ending,
        now: datetime,
        *,
        telemetry: Mapping[str, Any],
        samples: bytes | None = None,
        second_seed: str | None = None,
        b_ref_s: Sequence[float] | None = None,
        artifacts: Mapping[str, bytes] | None = None,
    ) -> bool:
        """Run, attempt, verdict, raw samples, a profile's files and event in one fenced statement. False: the report
        is stale; see keep_stale. With `second_seed` a second measurement is queued that counts instead; `b_ref_s` is a
        calibration's result."""

    def yardstick(self, attempt: OpenAttempt, node: str) -> Yardstick:
        """What the score of a leaderboard run is made and judged by."""

    def note_baseline(self, attempt: AttemptId, node: str, level: float, now: datetime, *, inside: bool) -> None: ...


class Calibrations(Protocol):
    """Reference times, and the runs that are held for them."""

    def tend(self, now: datetime) -> int:
        """Order calibrations that are due, and let runs go that waited for what is there now: how many."""


class Artifacts(Protocol):
    """The files of profiles."""

    def forget(self, before: datetime) -> int:
        """Remove those that are older; how many."""


class Places(Protocol):
    """How places fare."""

    def outcomes(self, now: datetime) -> Mapping[str, Outcomes]:
        """What runs came to lately, by backend."""

    def breakers(self) -> Mapping[str, Breaker]: ...
    def keep_breaker(self, backend: str, breaker: Breaker) -> None: ...


class Shadows(Protocol):
    """Runs that are measured at another place, too. They never rank."""

    def candidates(self, now: datetime) -> Sequence[Ranked]:
        """Runs that ranked lately and were measured nowhere else."""

    def order_once(self, ranked: Ranked, place: str, now: datetime) -> bool:
        """Have this run measured at this place, too, unless it has been ordered at any."""


class Events(Protocol):
    """The outbox."""

    def after(self, after: EventId, limit: int = 500) -> Sequence[Event]: ...
    def last(self) -> EventId:
        """The newest event that can be read."""

    def wait(self, timeout_s: float) -> bool:
        """Sleep until a NOTIFY says "look", or the time is over. Only a hint: no message is load-bearing."""


class Leases(Protocol):
    """Who leads."""

    def hold(
        self, name: str, holder: str, ttl_s: float, now: datetime, *, info: Mapping[str, Any] | None = None
    ) -> bool:
        """Take or keep it. `info` is what the holder tells whoever asks for the state of things."""

    def release(self, name: str, holder: str) -> None: ...


class Results(Protocol):
    """What `collect` and `score` ask for: the end of an attempt and its verdict are written by either."""

    @property
    def attempts(self) -> Attempts: ...
    @property
    def scores(self) -> Scores: ...


class Store(Results, Protocol):
    """What the daemon asks for: all of the walk but its first step."""

    @property
    def queue(self) -> Queue: ...
    @property
    def calibrations(self) -> Calibrations: ...
    @property
    def artifacts(self) -> Artifacts: ...
    @property
    def places(self) -> Places: ...
    @property
    def shadows(self) -> Shadows: ...
    @property
    def events(self) -> Events: ...
    @property
    def leases(self) -> Leases: ...
