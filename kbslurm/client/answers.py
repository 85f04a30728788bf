"""The service's answers as values: each field has a plain name, and the API's name for it.

They are dataclasses rather than the contract's models: those would slow down the start of every command, and they
refuse fields that a newer server adds. A test checks every name here against the contract.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any

from kbslurm.client.parsing import named


def _scores(runs: Sequence[Mapping[str, Any]]) -> Mapping[str, float | None]:
    return {run["gpu_type"]: run["score"] for run in runs}


def _unranked(runs: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    return {run["gpu_type"]: run["not_ranked"] for run in runs if run.get("not_ranked")}


@dataclass(frozen=True, kw_only=True)
class BoardInfo:
    """A board that the caller may see."""

    id: int
    name: str
    description: str
    task: Mapping[str, Any]
    deadline: datetime | None
    zone: str
    gpus: tuple[str, ...] = field(metadata=named("gpu_types"))
    visibility: str
    is_open: bool
    finalised_at: datetime | None = None
    names: str = "real"


@dataclass(frozen=True, kw_only=True)
class InvitationTaken:
    """What an invitation was good for: a token of one's own, and the boards that it opens."""

    person: str
    token: str
    boards: tuple[str, ...] = field(default=(), metadata=named("leaderboards"))


@dataclass(frozen=True, kw_only=True)
class Joined:
    """The boards that an invitation opens; `already`: it had done so before."""

    boards: tuple[str, ...] = field(metadata=named("leaderboards"))
    already: bool = False


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A GPU type's queue; with place, start (a range in seconds) and reason while a submission of ours is waiting."""

    gpu: str
    queued: int | None = field(metadata=named("queued_jobs"))
    running: int | None = field(metadata=named("running_jobs"))
    free: int | None = field(metadata=named("available_runners"))
    is_available: bool = field(metadata=named("status", lambda status: status == "available"))
    error: str | None
    place: int | None = None
    starts_in_s: tuple[float, float] | None = None
    waits_for: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """One phase of a run. `score_s` is exactly as the server sent it."""

    mode: str
    secret: bool
    gpu: str = field(metadata=named("runner"))
    passed: bool
    score_s: float | None = field(metadata=named("score"))
    result: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class SubmissionInfo:
    """A submission as its owner sees it. `status`: pending, running, succeeded, failed, timed_out or hacked."""

    id: int
    board: str = field(metadata=named("leaderboard_name"))
    mode: str
    file_name: str
    person_id: int = field(metadata=named("user_id"))
    submitted_at: datetime = field(metadata=named("submission_time"))
    done: bool
    status: str = field(metadata=named("job", itemgetter("status")))
    error: str | None = field(metadata=named("job", itemgetter("error")))
    code: str
    runs: tuple[RunInfo, ...]
    queue: Queue | None = field(metadata=named("runner_queue"))


@dataclass(frozen=True, kw_only=True)
class ArtifactInfo:
    """A profile's file: its contents come from the submission, its name from the judge."""

    gpu: str
    name: str
    size: int
    at: datetime


@dataclass(frozen=True, kw_only=True)
class SubmissionSummary:
    """A submission in a list; `scores` by GPU type, None if it doesn't rank, and `unranked` why it doesn't although it
    passed on a leaderboard."""

    id: int
    board: str = field(metadata=named("leaderboard_name"))
    mode: str
    file_name: str
    submitted_at: datetime = field(metadata=named("submission_time"))
    done: bool
    status: str
    scores: Mapping[str, float | None] = field(metadata=named("runs", _scores))
    unranked: Mapping[str, str] = field(metadata=named("runs", _unranked))


@dataclass(frozen=True, kw_only=True)
class StandingInfo:
    """One line of a leaderboard."""

    rank: int
    tied_with: tuple[int, ...]
    best_rank: int
    worst_rank: int
    submission_id: int
    person_id: int = field(metadata=named("user_id"))
    person: str = field(metadata=named("user_name"))
    file_name: str = field(metadata=named("submission_name"))
    score_s: float = field(metadata=named("submission_score"))
    low_s: float = field(metadata=named("interval", itemgetter(0)))
    high_s: float = field(metadata=named("interval", itemgetter(1)))
    at: datetime = field(metadata=named("submission_time"))
    ranks: tuple[int, int] = (0, 0)
    team: str | None = None


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """It is stored and can't be lost."""

    submission_id: int = field(metadata=named("details", itemgetter("id")))
    queue: Queue = field(metadata=named("runner_queue"))


@dataclass(frozen=True, kw_only=True)
class PersonInfo:
    """Somebody."""

    id: int
    name: str
    role: str
    banned: bool
    team: str | None = None


@dataclass(frozen=True, kw_only=True)
class FeedEvent:
    """One event; `token` is where to continue from."""

    token: str
    kind: str = field(metadata=named("type"))
    subject: str
    data: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, kw_only=True)
class May:
    """A person's rights beyond submitting; `gpus` are what places offer, for people with such rights."""

    host: bool
    creator: bool
    gpus: tuple[str, ...] = field(metadata=named("gpu_types"))


@dataclass(frozen=True, kw_only=True)
class MadeBoard:
    """A new board; `warnings` are its problem's, and GPU types that no place offers."""

    name: str = field(metadata=named("leaderboard"))
    gpus: tuple[str, ...] = field(metadata=named("gpu_types"))
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Verifying:
    """A canary in progress, one submission per place; the first one's number stands for all. `left_out` are GPU types
    that places offer but the board doesn't have."""

    submission_id: int
    submission_ids: tuple[int, ...]
    board: str = field(metadata=named("leaderboard"))
    gpus: tuple[str, ...] = field(metadata=named("gpu_types"))
    places: tuple[str, ...]
    left_out: tuple[str, ...]
