"""The ports: what the flow needs from the outside. Each fits on a screen; every adapter must do what its docstring
says."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from kbslurm.domain.breaker import Breaker, Outcomes
from kbslurm.domain.broken_off import Again
from kbslurm.domain.drains import Drain, PlaceLine
from kbslurm.domain.drift import Ranked
from kbslurm.domain.intake import Admission, Basis, ServiceToken
from kbslurm.domain.keepers import Facts, Keeper, KeeperEnding, KeeperSighting
from kbslurm.domain.measure import Yardstick
from kbslurm.domain.node_jobs import NodeJob
from kbslurm.domain.placement import Backlog, Rules
from kbslurm.domain.run import (
    AttemptId,
    Ending,
    EventId,
    Handle,
    InKeeper,
    JobName,
    KeeperId,
    KeeperName,
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
    """The current time, always timezone-aware and in UTC."""

    def now(self) -> datetime: ...


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """One job as it will run: only text and limits. `script` is the rendered job script, for backends that need one.
    `keeper`: it runs as a step in there, not as a job of its own."""

    name: JobName
    gpu: str
    manifest: str
    key: bytes
    time_limit_s: float
    memory_bytes: int
    directory: Path | None = None
    script: str | None = None
    keeper: InKeeper | None = None


class Backend(Protocol):
    """A place that runs jobs. It keeps no state in memory that matters: a new process finds everything it needs by job
    name.

    Every method may raise BackendTrouble and no other exception. No method waits for a job.
    """

    name: str

    def capacity(self) -> Mapping[str, int]:
        """How many attempts may be open at once, by GPU type. From the configuration; makes no calls."""

    def submit(self, job: JobSpec) -> Handle:
        """Start it. BackendRefused: certainly not started. BackendUnclear, or any other exception: it may have started.

        Calling it again with the same name and directory starts nothing twice: an attempt runs at most once.
        """

    def find(self, name: JobName) -> Sighting:
        """Look for a job of this name in every source. ABSENT only when every source answered and none knows it."""

    def poll(self, attempts: Sequence[OpenAttempt]) -> Mapping[JobName, Sighting]:
        """Check many in one batch. What is missing from the answer, or is UNKNOWN, changes nothing (law 4)."""

    def collect(self, attempt: OpenAttempt) -> bytes | None:
        """The sealed report, capped in size, or None if there is none yet. Never parsed here."""

    def cancel(self, attempt: OpenAttempt) -> None:
        """Kill it and everything it started if it is running; keep it from starting if it isn't. Safe to repeat.

        BackendRefused: not now; ask again later.
        """


@runtime_checkable
class LeavesArtifacts(Protocol):
    """A backend that also brings back a profile's files."""

    def artifacts(self, attempt: OpenAttempt, names: Sequence[str]) -> Mapping[str, bytes]:
        """The ones of these files that exist, each capped in size. Their contents are never inspected here."""


@runtime_checkable
class TellsProgress(Protocol):
    """A backend whose running jobs report their progress."""

    def progress(self, attempt: OpenAttempt) -> Mapping[str, Any] | None:
        """The job's latest progress report, unchecked and only for display. None when nothing is known. Never
        raises."""


@runtime_checkable
class TellsMemory(Protocol):
    """A backend whose jobs can have less memory than they need, so that the kernel ends a submission that may go on."""

    def ran_out_with_mb(self, name: JobName) -> int | None:
        """The memory that this job was given, if the kernel ended a process of it for that; else None."""


@runtime_checkable
class TellsDoubts(Protocol):
    """A backend that says why a poll concluded nothing about an attempt."""

    def doubt(self, name: JobName) -> str:
        """Why nothing is known about this job at the moment; empty if something is, or it wasn't polled. Only for
        display."""


@runtime_checkable
class Foresees(Protocol):
    """A backend that can predict when it would start a job that hasn't been submitted."""

    def foresee(self, script: str) -> datetime | None:
        """When it would start a job with this script if it were submitted now; None if it doesn't say. Starts nothing,
        costs one call, and never raises."""


@dataclass(frozen=True, kw_only=True)
class KeeperSpec:
    """One keeper as it will run."""

    name: KeeperName
    gpu: str
    directory: Path
    script: str
    idle_s: float
    life_s: float


@runtime_checkable
class KeepsWarm(Protocol):
    """A backend that can hold GPUs, and run attempts there as steps of their own. The attempts go through Backend:
    `submit` with a job's `keeper` starts a step. BackendRefused: it certainly isn't started, and the keeper is no
    place for it."""

    def open_keeper(self, spec: KeeperSpec) -> Handle:
        """Start it. As for Backend.submit: BackendRefused means certainly not started, anything else perhaps; the same
        name twice holds nothing twice."""

    def find_keeper(self, name: KeeperName) -> KeeperSighting:
        """Look for it in every source. ABSENT only when every source answered and none knows it."""

    def watch_keepers(self, keepers: Sequence[Keeper]) -> Mapping[KeeperName, KeeperSighting]:
        """Check many in one batch, with the calls that `poll` makes anyway. What is missing changes nothing."""

    def drain_keeper(self, keeper: Keeper) -> None:
        """Give it no more work; it ends when its run has. Makes no scheduler call. Safe to repeat."""

    def end_keeper(self, keeper: Keeper) -> None:
        """Kill it, with the run in it. Safe to repeat. BackendRefused: not now; ask again later."""

    def others_wait(self, gpu: str) -> tuple[bool | None, str]:
        """Whether other people's jobs wait for these GPUs, and how that is known: one call. None: it can't be seen."""

    def prune_keepers(self, before: datetime, *, keep: Collection[KeeperName]) -> int:
        """Remove the files of keepers that ended before this moment, except these; returns how many were removed."""


@runtime_checkable
class RingsDoorbell(Protocol):
    """A backend whose jobs signal when they start and end, so that they are checked immediately."""

    def doorbell(self) -> int | None:
        """A descriptor that becomes readable when a job has signalled; None if there is none. The backend owns it."""


@runtime_checkable
class PrunesFiles(Protocol):
    """A backend that keeps the files of finished attempts."""

    def prune(self, before: datetime, *, keep: Collection[JobName]) -> int:
        """Remove the files of attempts that ended before this moment, except these; returns how many were removed."""


@dataclass(frozen=True, kw_only=True)
class PaceReport:
    """How often a scheduler is queried, as `kbslurm status` shows it. `failing`: how many calls in a row it left
    unanswered, and `why`. `way`: how it is reached, where that isn't by its commands on this machine."""

    calls: int
    interval_s: float
    budget_left: float
    failing: int
    slow: bool
    why: str = ""
    way: str = ""


@runtime_checkable
class TellsPace(Protocol):
    """A backend that queries a scheduler within a budget of calls."""

    def pace_report(self) -> PaceReport: ...


@dataclass(frozen=True, kw_only=True)
class LimitReport:
    """What is left of one of a service's limits, as `kbslurm status` shows it."""

    what: str
    left: int
    most: int
    resets_at: datetime | None = None


@runtime_checkable
class TellsLimits(Protocol):
    """A backend at a service that limits how often it is called."""

    def limits(self) -> Sequence[LimitReport]:
        """Its limits, by its last answers. Makes no calls."""


@runtime_checkable
class TellsLapse(Protocol):
    """A backend behind a login that may lapse."""

    def lapse(self) -> str:
        """Why it can't be reached at all, and what to type; empty if it can, or isn't known not to be."""


@runtime_checkable
class Closes(Protocol):
    """A backend that holds connections or descriptors."""

    def close(self) -> None:
        """Close them. Running jobs keep running."""


@dataclass(frozen=True, kw_only=True)
class NewSubmission:
    """A submission that has been checked and can be stored. `place`: its runs go there and nowhere else. `benchmark`:
    the only one that is profiled. `practice`: it came after the end, and counts nowhere. `service`: by which token of a
    program's it came. `key`: the person's submission with this key is stored once."""

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
    benchmark: int | None = None
    practice: bool = False
    service: ServiceToken | None = None
    key: str | None = None
    basis: Basis | None = None


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """A submission that is stored and can't be lost. Its first run waits for `first_gpu` since `first_fair_at`, a
    virtual time: enough to tell its place in the queue."""

    submission_id: SubmissionId
    run_ids: tuple[RunId, ...]
    first_gpu: str
    first_fair_at: datetime
    accepted_at: datetime


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happened. `kind` is like `run.scored`, `subject` like `run:12`; `data` never holds a secret."""

    id: EventId
    kind: str
    subject: str
    data: Mapping[str, Any]
    at: datetime


class Intake(Protocol):
    """Accepting submissions. Each method, as everywhere in the store, is one transaction that includes its event."""

    def admission(self, person: PersonId, board: str, mode: Mode = "test") -> Admission:
        """What `accept` needs to know about this person and board, in one read. NotFound lists the existing boards."""

    def accept(self, new: NewSubmission, now: datetime) -> Receipt:
        """Store it. Its `key` may have been used meanwhile: then the receipt is that submission's."""

    def keyed(
        self, person: PersonId, key: str, *, board: str, gpus: Sequence[str], mode: Mode, source_sha256: str
    ) -> Receipt | None:
        """The receipt of the person's submission with this key, if there is one. Invalid if that was another file or
        mode."""


class Submissions(Protocol):
    """Cancelling and removing submissions."""

    def cancel(self, submission: SubmissionId, by: PersonId | None, now: datetime) -> Sequence[OpenAttempt]:
        """Queued runs are cancelled now; the open attempts of the others are marked (`cancel_at`) and returned.

        Refused unless `by` owns the submission or is staff; None is the service itself. NotFound if it doesn't exist.
        """

    def take_back(self, submission: SubmissionId, by: str, now: datetime, person: PersonId | None = None) -> None:
        """Remove it from every list and delete its source. This doesn't cancel open runs; `cancel` does."""


class Queue(Protocol):
    """Queued runs."""

    def claim(self, slots: Sequence[Slot], now: datetime, *, rules: Rules | None = None) -> OpenAttempt | None:
        """Give the next queued run (in fair order) that fits a slot a new attempt (state INTENT); None if none fits.
        SKIP LOCKED.

        A run doesn't fit a place where it needs more GPUs than one run may have, where it was refused before, or that
        isn't the one it was pinned to. With `rules`, the slots' conditions apply too, and its maximum cost must fit
        into the month's budget, with open runs counted at their maximum."""

    def waiting(self) -> Mapping[str, int]:
        """How many runs are queued, by GPU type."""

    def demand(self, now: datetime) -> Backlog:
        """What the placement policy needs to know about the queue and this month's spending, in one read."""

    def next_up(self, gpu: str, backend: str, now: datetime) -> Work | None:
        """The next queued run for this GPU type that may go there, as if it had an attempt there. Claims nothing and
        contains no secret."""


class Attempts(Protocol):
    """Attempts, from claim to end. The fence is (attempt, number).

    A method that returns False changed nothing: the run has moved on to another attempt.
    """

    def work(self, attempt: AttemptId) -> Work: ...
    def open(self) -> Sequence[OpenAttempt]: ...
    def lately_dead(self, since: datetime) -> Sequence[OpenAttempt]:
        """Attempts that ran and were given up after this moment; a report may still arrive, but only counts as
        evidence."""

    def note_handle(self, attempt: OpenAttempt, handle: Handle, deadline_at: datetime, now: datetime) -> bool: ...
    def note_ambiguous(self, attempt: OpenAttempt, why: str, now: datetime) -> bool: ...
    def note_clean_sweep(self, attempt: OpenAttempt, now: datetime) -> bool: ...
    def note_resend(self, attempt: OpenAttempt, now: datetime) -> bool:
        """Send the same attempt again (same number, name, directory): back to INTENT, earlier sweeps discarded."""

    def note_seen(self, attempt: OpenAttempt, sighting: Sighting, now: datetime) -> bool: ...
    def note_told(self, told: Mapping[AttemptId, Mapping[str, Any]]) -> None:
        """Store what open attempts last reported, or why they aren't submitted, all at once. Only for display, so not
        fenced. A new handle and a new try delete what they waited for."""

    def put_off_deadlines(self, by_s: float) -> int:
        """Extend the deadline of every open attempt by this much; returns how many. For when the clock jumped
        forward."""

    def withdraw(self, attempt: OpenAttempt, slots: Sequence[Slot], why: str, now: datetime) -> bool:
        """Ask for this attempt back if one of these slots fits its run: cancelling is retried until it is confirmed or
        the job starts."""

    def give_up(
        self, attempt: OpenAttempt, ending: Ending, why: str, now: datetime, *, elsewhere: Sequence[str] = ()
    ) -> RunState | None:
        """Close the attempt; the run goes back to QUEUED or, if it has no retries left, to FAILED with verdict
        infrastructure.

        A retry is also due while a backend in `elsewhere` hasn't refused this run. None: the run has moved on to
        another attempt. A run with `cancel_at` isn't queued again; it becomes CANCELLED.
        """

    def end_cancelled(self, attempt: OpenAttempt, now: datetime) -> bool: ...
    def keep_stale(self, attempt: OpenAttempt, report: bytes, why: str, now: datetime) -> None: ...


class Scores(Protocol):
    """Verdicts: at most one per run."""

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
        broke_off: bool | None = False,
        instead: RunId | None = None,
    ) -> bool:
        """Store run, attempt, verdict, raw samples, a profile's files and the event in one fenced statement. False: the
        report is stale; see keep_stale. With `second_seed`, another measurement is queued and counts instead; so does
        `instead`, an earlier one. `b_ref_s` is a calibration's result. `broke_off`: whether it failed while it was
        being ranked; None: as far as its progress told. A second measurement that failed always did."""

    def yardstick(self, attempt: OpenAttempt, node: str, harness: str) -> Yardstick:
        """What is needed to score a leaderboard run that this harness measured."""

    def again(self, attempt: OpenAttempt) -> Again | None:
        """What is needed besides for a second or later measurement; None: it isn't one, or no other can follow."""

    def note_baseline(
        self, attempt: AttemptId, node: str, level: float, now: datetime, *, harness: str, inside: bool
    ) -> None: ...


class Calibrations(Protocol):
    """Reference times, and the runs that are held for them."""

    def tend(self, now: datetime) -> int:
        """Order due calibrations, and release runs whose reference times are now known; returns how many."""


class Artifacts(Protocol):
    """The files of profiles."""

    def forget(self, before: datetime) -> int:
        """Remove files older than this; returns how many."""


class Places(Protocol):
    """The health of places."""

    def outcomes(self, now: datetime) -> Mapping[str, Outcomes]:
        """Recent run outcomes, by backend."""

    def breakers(self) -> Mapping[str, Breaker]: ...
    def keep_breaker(self, backend: str, breaker: Breaker) -> None: ...

    def drains(self) -> Sequence[Drain]:
        """The places, or GPU types of places, to which hosts let nothing new go."""

    def reload_order(self) -> str:
        """The last order to read the configuration anew; empty if there never was one."""

    def answer_reload(self, answer: Mapping[str, Any]) -> None:
        """Say what came of reading it."""

    def write_down(self, lines: Sequence[PlaceLine]) -> None:
        """Keep these lines of the daemon's log, of each place the newest."""


class Shadows(Protocol):
    """Shadows: runs that are also measured at another place. They never rank."""

    def candidates(self, now: datetime) -> Sequence[Ranked]:
        """Runs that ranked recently and were measured nowhere else."""

    def order_once(self, ranked: Ranked, place: str, now: datetime, *, cold: bool = False) -> bool:
        """Order this run to be measured at this place too, unless that was already ordered at some place. `cold`: by a
        job of its own, although warm workers are there."""


class Keepers(Protocol):
    """Keepers, from intent to end. A method that returns False changed nothing: the keeper has moved on."""

    def open(self) -> Sequence[Keeper]:
        """Those that may hold a GPU."""

    def facts(self, backend: str, gpu: str, now: datetime) -> Facts:
        """What history says about this GPU type there, in one read."""

    def shunned(self, backend: str, now: datetime) -> Sequence[str]:
        """The nodes there that are left out, since runs of several people failed on them."""

    def order(
        self,
        backend: str,
        gpu: str,
        *,
        life_s: float,
        idle_s: float,
        most: int,
        why: str,
        now: datetime,
        by: str | None = None,
    ) -> Keeper | None:
        """Commit the intent to hold one more GPU, unless as many as `most` are open there. `by`: a host asks for it,
        and a daemon is to take it up; see `accept`."""

    def accept(self, keeper: Keeper, now: datetime) -> bool:
        """Take up what a host asked for: ASKED becomes INTENT. Only what nobody has sent can be taken up."""

    def note_handle(self, keeper: Keeper, handle: Handle, now: datetime) -> bool: ...
    def note_ambiguous(self, keeper: Keeper, why: str, now: datetime) -> bool: ...
    def note_clean_sweep(self, keeper: Keeper, now: datetime) -> bool: ...
    def note_resend(self, keeper: Keeper, now: datetime) -> bool: ...
    def note_seen(self, keeper: Keeper, sighting: KeeperSighting, now: datetime) -> bool:
        """WAITING and RUNNING advance it; the others do nothing: see `end`."""

    def note_look(self, backend: str, gpu: str, others: bool | None, why: str, now: datetime) -> None:
        """Store what a look at the partition showed, with every keeper that holds such a GPU there."""

    def drain(self, keeper: KeeperId, ending: KeeperEnding, why: str, now: datetime) -> bool:
        """Give it no more runs, for good."""

    def end(
        self, keeper: Keeper, ending: KeeperEnding, why: str, now: datetime, *, ended_at: datetime | None = None
    ) -> bool:
        """It holds nothing any more. Attempts in it that may have been sent are judged by evidence, as any."""


class Events(Protocol):
    """The outbox."""

    def after(self, after: EventId, limit: int = 500) -> Sequence[Event]: ...
    def last(self) -> EventId:
        """The newest visible event."""

    def wait(self, timeout_s: float) -> bool:
        """Sleep until a NOTIFY arrives or the timeout passes. Only a hint: nothing depends on any message arriving."""


# The daemon's work is done either by the holder of the lease `daemon` or, until this row expires, by a timer.
TICKS = "ticks"


class NodeJobs(Protocol):
    """Jobs whose start is claimed at our API, by the place's own nodes: what such a place's backend needs."""

    def offer(self, name: JobName, place: str, order: bytes, lease_s: float, now: datetime) -> NodeJob:
        """Keep this sealed order for whoever claims the job; once it is claimed or forbidden, that stays as it is."""

    def look(self, names: Sequence[JobName]) -> Mapping[JobName, NodeJob]:
        """Those of them that were offered or forbidden."""

    def forbid(self, name: JobName, place: str, now: datetime, *, unclaimed: bool = False) -> NodeJob:
        """Keep it from being claimed, and a claimant from going on; offered or not. `unclaimed`: only if nobody has
        claimed it. Returns what holds now."""

    def result(self, name: JobName) -> bytes | None:
        """What its claimant delivered, sealed."""

    def prune(self, place: str, before: datetime, *, keep: Collection[JobName]) -> int:
        """Remove those that nobody has touched since, except these; returns how many."""

    def close(self) -> None:
        """Close the connections."""


class Leases(Protocol):
    """Leader election."""

    def hold(
        self, name: str, holder: str, ttl_s: float, now: datetime, *, info: Mapping[str, Any] | None = None
    ) -> bool:
        """Take or renew the lease. `info` is what the holder publishes about its state."""

    def release(self, name: str, holder: str) -> None: ...
    def told(self, name: str) -> Mapping[str, Any]:
        """What its holder has published last; empty if nobody holds it."""


class Results(Protocol):
    """What `collect` and `score` need: both write the end of an attempt and its verdict."""

    @property
    def attempts(self) -> Attempts: ...
    @property
    def scores(self) -> Scores: ...


class Store(Results, Protocol):
    """What the daemon needs: every step of the walk except the first."""

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
    def keepers(self) -> Keepers: ...
    @property
    def events(self) -> Events: ...
    @property
    def leases(self) -> Leases: ...
