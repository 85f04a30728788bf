"""The life of a run and of its attempts: states, the moves between them, and what an ending means.

QUEUED → LAUNCHING → RUNNING → SCORED | FAILED | CANCELLED. The only edges back are LAUNCHING | RUNNING → QUEUED:
a new attempt. SCORED means that the submission's outcome is known, nearly always by an accepted report, else by proof
that it hit its own limit (time, memory). FAILED means that no report will come, through no fault of the submission.
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal, NewType

from kbslurm.domain.problem import Problem
from kbslurm_eval.shared.wire import Mode, VerdictName

SubmissionId = NewType("SubmissionId", int)
RunId = NewType("RunId", int)
AttemptId = NewType("AttemptId", int)
PersonId = NewType("PersonId", int)
EventId = NewType("EventId", int)
JobName = NewType("JobName", str)
Handle = NewType("Handle", str)
KeeperId = NewType("KeeperId", int)
KeeperName = NewType("KeeperName", str)

Leaderboard = Literal["yes", "unranked", "no"]

JOB_PREFIX = "kb-"
INFRASTRUCTURE_ATTEMPTS = 3
WITHOUT_END = 1 << 30


class RunState(StrEnum):
    """A run's state."""

    QUEUED = "queued"
    LAUNCHING = "launching"
    RUNNING = "running"
    SCORED = "scored"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN_RUNS = frozenset({RunState.QUEUED, RunState.LAUNCHING, RunState.RUNNING})

MOVES: frozenset[tuple[RunState, RunState]] = frozenset(
    {
        (RunState.QUEUED, RunState.LAUNCHING),
        (RunState.QUEUED, RunState.CANCELLED),
        (RunState.LAUNCHING, RunState.RUNNING),
        (RunState.LAUNCHING, RunState.QUEUED),
        (RunState.LAUNCHING, RunState.SCORED),
        (RunState.LAUNCHING, RunState.FAILED),
        (RunState.LAUNCHING, RunState.CANCELLED),
        (RunState.RUNNING, RunState.QUEUED),
        (RunState.RUNNING, RunState.SCORED),
        (RunState.RUNNING, RunState.FAILED),
        (RunState.RUNNING, RunState.CANCELLED),
    }
)


class AttemptState(StrEnum):
    """The state of one attempt on one backend. INTENT: committed, perhaps not sent yet. AMBIGUOUS: perhaps sent."""

    INTENT = "intent"
    AMBIGUOUS = "ambiguous"
    SUBMITTED = "submitted"
    RUNNING = "running"
    REPORTED = "reported"
    DEAD = "dead"
    REFUSED = "refused"
    CANCELLED = "cancelled"


OPEN_ATTEMPTS = frozenset({AttemptState.INTENT, AttemptState.AMBIGUOUS, AttemptState.SUBMITTED, AttemptState.RUNNING})


class Ending(StrEnum):
    """How an attempt ended, according to the evidence."""

    REPORTED = "reported"  # there is a report
    TIMEOUT = "timeout"  # its own time limit
    MEMORY = "memory"  # its own memory limit
    NODE_FAILURE = "node_failure"
    PREEMPTED = "preempted"
    BOOT_FAILURE = "boot_failure"
    IMAGE = "image"  # the image is missing, broken, or its container wouldn't start
    NO_REPORT = "no_report"  # it ended without a report and without hitting a limit
    BAD_REPORT = "bad_report"  # the report isn't valid
    CANCELLED = "cancelled"  # it was killed from outside
    REFUSED = "refused"  # the backend refused it
    VANISHED = "vanished"  # every source was asked, twice, and none knows it
    UNSTEADY = "unsteady"  # the trusted baseline was abnormal on that node
    WITHDRAWN = "withdrawn"  # it hadn't started, and its run goes elsewhere
    MISCONFIGURED = "misconfigured"  # the place gave it less than its problem needs
    KEEPER_LEFT = "keeper_left"  # the keeper that it ran in went
    CHECK_DIED = "check_died"  # its answer brought the problem's check down, and the judge with it


OWN_FAULT: dict[Ending, VerdictName] = {
    Ending.TIMEOUT: "timeout",
    Ending.MEMORY: "memory",
    Ending.CHECK_DIED: "wrong",
}


CHECK_DIED = "an answer is wrong: the problem's check didn't survive it"


def tries_owed(ending: Ending) -> int:
    """The maximum number of attempts. A submission's own failures are never retried, others at most three times.

    Refusals aren't retried at the same place: an attempt is only given up as REFUSED if the same request would always
    be refused there. The store knows by the refusals whether another place may still take the run; refused attempts
    aren't counted here, since they never ran. Neither are attempts withdrawn before they started. A place that gives
    too little would do so again: a host must change it first.
    """
    if ending is Ending.WITHDRAWN:
        return WITHOUT_END
    if ending in OWN_FAULT or ending in (Ending.REPORTED, Ending.REFUSED, Ending.MISCONFIGURED):
        return 0
    return INFRASTRUCTURE_ATTEMPTS


def new_job_name() -> JobName:
    """A unique job name: the only key that both squeue and sacct always show."""
    token = base64.b32encode(secrets.token_bytes(16)).decode().rstrip("=").lower()
    return JobName(JOB_PREFIX + token)


def is_step(handle: str | None) -> bool:
    """Whether this is a step of a keeper's, `JOB.STEP`, and not a job of its own."""
    job, point, step = (handle or "").partition(".")
    return bool(point) and job.isdigit() and step.isdigit()


class Seen(StrEnum):
    """A backend's view of an attempt. ABSENT: every source was asked and none knows it. UNKNOWN: couldn't check."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """One observation of an attempt. `ending` is set exactly if it is ENDED, `expected_at` only while it waits.
    `granted_mb`: the memory that its job was given, if its place says so."""

    seen: Seen
    handle: Handle | None = None
    node: str | None = None
    ending: Ending | None = None
    exit_code: int | None = None
    reason: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    expected_at: datetime | None = None
    granted_mb: int | None = None


@dataclass(frozen=True, kw_only=True)
class InKeeper:
    """The keeper that a warm attempt runs in, and the job that the keeper is, once that is known."""

    id: KeeperId
    name: KeeperName
    job: Handle | None


# A slot's way: any run, only runs that may run in a keeper, or only those that may not.
Way = Literal["any", "warm", "cold"]


@dataclass(frozen=True, kw_only=True)
class Slot:
    """Capacity for `free` more open attempts at a backend for a GPU type. Earlier slots are preferred.

    `staff_only`: the place can't isolate submissions from the rest of the site, so only trusted people's runs go there.
    `most`: how many GPUs one run may have there; None: no limit.

    The rest is for the placement policy, if there is one (domain.placement). `overflow`: only boards that may use the
    place. `queued_before`: only runs that have waited since before then. `pinned_only`: only runs pinned there.
    `leaderboard`: whether leaderboard runs rank there, run unranked, or don't go there. `price`: cost per GPU and
    second. `alone`: only one attempt is offered. `why`: the recorded reason for the choice.

    `way`: whether it is for runs that may go into a keeper. `keeper`: the slot is that keeper, which takes runs of at
    most `fits_s`. `skip`: so many of the first runs in the queue are left for keepers.
    """

    backend: str
    gpu: str
    free: int
    staff_only: bool = False
    most: int | None = None
    overflow: bool = False
    queued_before: datetime | None = None
    pinned_only: bool = False
    leaderboard: Leaderboard = "yes"
    price: float = 0.0
    gpu_class: str = ""
    alone: bool = False
    why: str = ""
    way: Way = "any"
    keeper: KeeperId | None = None
    fits_s: float = 0.0
    skip: int = 0


@dataclass(frozen=True, kw_only=True)
class OpenAttempt:
    """An attempt that may still produce a result. `number` is the fence for every later write.

    `ranks`: false if its GPU isn't of its board's class. `withdraw_at`: since when it is being withdrawn. `over_at`:
    when it was first seen ended; its report may only be late. `keeper`: what a warm attempt runs in; None: it is a job
    of its own.
    """

    id: AttemptId
    run_id: RunId
    number: int
    name: JobName
    backend: str
    gpu: str
    state: AttemptState
    handle: Handle | None
    opened_at: datetime
    deadline_at: datetime | None
    clean_sweeps: int = 0
    swept_at: datetime | None = None
    seen_at: datetime | None = None
    started_at: datetime | None = None
    node: str | None = None
    cancel_at: datetime | None = None
    gpus: int = 1
    ranks: bool = True
    withdraw_at: datetime | None = None
    over_at: datetime | None = None
    keeper: InKeeper | None = None


@dataclass(frozen=True, kw_only=True)
class Work:
    """Everything needed to render and judge one attempt."""

    attempt: OpenAttempt
    submission_id: SubmissionId
    person: str
    by_staff: bool
    board: str
    mode: Mode
    file_name: str
    source: str
    problem: Problem
    problem_digest: str
    nonce: str
    key: bytes
    secret_seed: str
    avoid_nodes: tuple[str, ...] = ()
    ranked_min_isolation: int = 0
    via: str = "cli"
    cluster_account: str | None = None
    benchmark: int | None = None
