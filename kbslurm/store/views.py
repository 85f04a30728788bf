"""Read-only values for the interfaces, each read in one go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from kbslurm.domain import access, broken_off, placement, waiting
from kbslurm.domain.access import NamesShown, Role, StandingsShown, Visibility
from kbslurm.domain.amounts import span
from kbslurm.domain.intake import ServiceToken
from kbslurm.domain.lateness import LatePolicy
from kbslurm.domain.policy import Category
from kbslurm.domain.problem import Problem
from kbslurm.domain.run import EventId, PersonId, RunId, RunState, SubmissionId
from kbslurm.domain.verdict import Verdict
from kbslurm.domain.waterfall import Stamps, moment
from kbslurm_eval.shared.wire import Mode

RankBy = Literal["best", "last"]
TokenKind = Literal["cli", "web", "api", "pending", "invite", "service"]


@dataclass(frozen=True, kw_only=True)
class Person:
    """A person who submits or hosts."""

    id: PersonId
    name: str
    role: Role
    banned_at: datetime | None
    ban_reason: str
    discord_id: str | None
    github_id: str | None
    created_at: datetime
    team: str | None = None
    cluster_account: str | None = None
    # The service token by which they call now, if it is one.
    service: ServiceToken | None = None

    @property
    def is_staff(self) -> bool:
        return access.has_staff_rights(self)


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token without its secret, of which only a hash is stored."""

    id: int
    person_id: PersonId | None
    device: str
    kind: TokenKind
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None
    gpu_s_per_day: float | None = None


@dataclass(frozen=True, kw_only=True)
class ProblemVersion:
    """One version of a problem, by its digest."""

    id: int
    problem_id: int
    name: str
    digest: str
    created_at: datetime
    inputs: str


@dataclass(frozen=True, kw_only=True)
class Board:
    """A leaderboard with its live problem. `problem_digest` is the recorded one. Contains secrets: never show all of
    it."""

    id: int
    name: str
    description: str
    problem_name: str
    problem_version_id: int
    problem_digest: str
    problem: Problem
    deadline_at: datetime | None
    zone: str
    visibility: Visibility
    gpus: tuple[str, ...]
    ranking: RankBy
    secret_seed: str
    min_isolation: int
    confirm: bool
    cold: bool
    created_by: PersonId | None
    created_at: datetime
    closed_at: datetime | None
    late: LatePolicy
    frozen_at: datetime | None
    finalisation: int | None  # the one that fixes its standings
    finalised_at: datetime | None
    submissions: int | None  # None: not counted
    course: str | None = None
    teams: bool = False
    teams_only: bool = False
    practice: bool = False
    names: NamesShown = "real"
    standings: StandingsShown = "shown"
    publishes_reference: bool = False


@dataclass(frozen=True, kw_only=True)
class Moved:
    """The people whose ranks on a board may have changed up to this event; None: anyone's. `changed`: the board
    changed; `renamed`: somebody has another nickname there."""

    upto: EventId
    changed: bool
    people: frozenset[PersonId] | None
    renamed: bool = False


@dataclass(frozen=True, kw_only=True)
class ArtifactView:
    """A profile's file."""

    gpu: str
    name: str
    size: int
    at: datetime


@dataclass(frozen=True, kw_only=True)
class AttemptView:
    """One attempt, with the timestamps for its part of the waterfall. No key, no nonce."""

    number: int
    name: str
    backend: str
    state: str
    handle: str | None
    node: str | None
    ending: str | None
    exit_code: int | None
    reason: str
    opened_at: datetime
    submitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    deadline_at: datetime | None
    telemetry: Mapping[str, Any]
    why_here: str = ""
    warm: bool = False

    @property
    def known_at(self) -> datetime | None:
        """When it was submitted, if that is known: of a job that was found again after its start it isn't."""
        return None if self.telemetry.get("adopted") else self.submitted_at


@dataclass(frozen=True, kw_only=True)
class RunView:
    """A run with its attempts, oldest first, and its verdict if it has one."""

    id: RunId
    gpu: str
    state: RunState
    problem_version_id: int
    attempt_count: int
    queued_at: datetime
    fair_at: datetime
    cancel_at: datetime | None
    ended_at: datetime | None
    reason: str
    verdict: Verdict | None
    verdict_at: datetime | None
    attempts: tuple[AttemptView, ...]
    second: bool = False
    held: bool = False
    first_score_s: float | None = None
    broke_off: bool = False
    measurements: int = 1

    @property
    def waits_for(self) -> str:
        """Why the open attempt hasn't started, and what happens next, if anything is known."""
        last = self.attempts[-1] if self.attempts else None
        return waiting.of_attempt(last.state, str(last.telemetry.get("waits", "")), last.reason) if last else ""

    @property
    def given_up(self) -> list[str]:
        """The attempts that failed through no fault of the submission's, if another one followed, as sentences."""
        return [
            f"attempt {a.number} at {a.backend} was given up: {a.reason or a.ending}"
            for a in self.attempts
            if a.state in ("dead", "refused") and a.number < self.attempt_count
        ]

    @property
    def remarks(self) -> list[str]:
        """About how often it was measured, and that it broke off while it was, as sentences."""
        return broken_off.remarks(
            broke_off=self.broke_off,
            is_second=self.second,
            measurements=self.measurements,
            ranked=self.verdict is not None and self.verdict.ranked,
        )

    @property
    def went(self) -> str:
        """Where its last attempt went and why, unless that is simply home."""
        last = self.attempts[-1] if self.attempts else None
        return placement.went(last.backend, last.why_here) if last and not last.warm else ""

    @property
    def warm(self) -> str:
        """How soon it started in a warm worker, if it did."""
        last = self.attempts[-1] if self.attempts else None
        if last is None or not last.warm:
            return ""
        at = moment(last.telemetry.get("harness_started_at_ns")) or last.started_at
        if at is None:
            return "warm"
        return f"warm: started {span(max(0.0, (at - self.queued_at).total_seconds()))} after submit"

    @property
    def shown_state(self) -> str:
        """Its state as shown to people: a second measurement is 'confirming' until it has ended, and a run that waits
        for its board's reference times is 'calibrating'."""
        if self.ended_at is None and self.second:
            return "confirming"
        if self.ended_at is None and self.held:
            return "calibrating"
        return self.state.value

    @property
    def stamps(self) -> Stamps:
        """The timestamps for the waterfall, from the last attempt if there were several."""
        last = self.attempts[-1] if self.attempts else None
        if last is None:
            return Stamps(accepted_at=self.queued_at)
        return Stamps(
            accepted_at=self.queued_at,
            claimed_at=last.opened_at,
            submitted_at=last.known_at,
            harness_started_at=moment(last.telemetry.get("harness_started_at_ns")) or last.started_at,
            harness_ended_at=moment(last.telemetry.get("harness_ended_at_ns")),
            collected_at=last.ended_at,
            scored_at=self.verdict_at,
        )


@dataclass(frozen=True, kw_only=True)
class SubmissionView:
    """A submission and its results. `source` and the verdicts' details only if requested. `late_s`: by how much it came
    after its author's deadline; none of its verdicts ranks then. `team`: the one that it counts for, where teams count
    together."""

    id: SubmissionId
    person_id: PersonId
    person: str
    board_id: int
    board: str
    mode: Mode
    file_name: str
    source: str | None
    sha256: str
    via: str
    by_staff: bool
    accepted_at: datetime
    removed_at: datetime | None
    runs: tuple[RunView, ...]
    late_s: float = 0.0
    frozen_at: datetime | None = None  # its board's freeze
    team: str | None = None
    names: NamesShown = "real"  # its board's
    standings: StandingsShown = "shown"
    practice: bool = False  # it came after the end, and counts nowhere

    @property
    def is_done(self) -> bool:
        return all(run.ended_at is not None for run in self.runs)


@dataclass(frozen=True, kw_only=True)
class RateLimit:
    """How many submissions of a category a person may make to a board per hour."""

    board: str
    category: Category
    most_per_hour: int


@dataclass(frozen=True, kw_only=True)
class Invite:
    """An invitation, and who claimed it."""

    code: str
    person_id: PersonId | None
    person: str | None
    claimed_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class GpuQueue:
    """One GPU type's queue. `oldest_at` is when the longest waiting run was accepted."""

    gpu: str
    queued: int
    launching: int
    running: int
    oldest_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Want:
    """What a number of queued runs need: a GPU type, how many on one node, and whether the submitter is staff."""

    gpu: str
    gpus: int
    by_staff: bool
    runs: int


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """How many attempts wait at a place for the same reason, in the place's words. `submitted`: it certainly has their
    jobs."""

    backend: str
    gpu: str
    reason: str
    attempts: int
    submitted: bool = True


@dataclass(frozen=True, kw_only=True)
class LeaseState:
    """The leader. `info` is what the holder published about itself (host, pid, version, …)."""

    name: str
    holder: str
    elected_at: datetime
    beat_at: datetime
    expires_at: datetime
    info: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class AtBoard:
    """What is going on at a board; `failed` within a day. The last three await a host."""

    board_id: int
    queued: int
    running: int
    failed: int
    questions: int
    rejudges: int
    finals: int


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A rejudge or a final that waits until it is applied or discarded; `open`: runs that haven't ended."""

    kind: Literal["rejudge", "final"]
    board: str
    gpu: str
    since: datetime
    by: str
    open: int


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Something that needs a host's attention."""

    kind: Literal["ambiguous", "failed", "quarantined", "unsteady", "old", "budget", "broken_off"]
    subject: str
    text: str
    since: datetime
