"""The hosts' rules on who may do what, how often, until when. Pure; the caller passes the facts.

Limits, quotas, budgets and deadlines don't apply to staff, who test things. Bans apply to everyone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args

from kbslurm.domain import gpu_budgets
from kbslurm.errors import Invalid, NotFound, QuotaSpent, Refused
from kbslurm_eval.shared.wire import Mode

Category = Literal["test", "leaderboard"]

WINDOW = timedelta(hours=1)
RUNS_END = timedelta(seconds=30)  # when to ask again where open runs are what is in the way
QUOTA_WINDOW = timedelta(days=1)
MOST_PER_HOUR = 1_000_000
MOST_CODES = 10_000


@dataclass(frozen=True, kw_only=True)
class LimitsAndUse:
    """What has to be known about a person and a board in addition to the intake, in one read.

    `recent_at` are the times of the person's submissions of this category to this board in the last hour, `used_gpu_s`
    the GPU-seconds that the person's runs on this board used in the last day, and `oldest_use_at` when the first of
    those ended. Where teams count together, all of these are the team's. `budgets` are those in GPU-hours at
    home that the person holds, or holds a part of.
    """

    invited: bool = False
    extended_to: datetime | None = None
    most_per_hour: int | None = None
    recent_at: Sequence[datetime] = ()
    quota_gpu_s: float | None = None
    reserved_gpu_s: float = 0.0  # by open runs, where the quota is a service token's
    used_gpu_s: float = 0.0
    oldest_use_at: datetime | None = None
    budgets: Sequence[gpu_budgets.Held] = ()


def category(mode: Mode) -> Category:
    """The category of a mode: ranked submissions are one, everything else is the other."""
    return "leaderboard" if mode == "leaderboard" else "test"


def category_named(text: str) -> Category:
    """The category with that name, or Invalid."""
    for known in get_args(Category):
        if text.strip().lower() == known:
            return category(known)
    raise Invalid(
        f"{text!r} isn't a valid category", hint="Choose test (which includes benchmark and profile) or leaderboard."
    )


def per_hour(most: int) -> int:
    """The checked rate, or Invalid."""
    if not 0 <= most <= MOST_PER_HOUR:
        raise Invalid(f"the hourly limit must be between 0 and {MOST_PER_HOUR:,}, not {most}")
    return most


def deadline(board: datetime | None, extended_to: datetime | None) -> datetime | None:
    """When the board closes for this person: an extension never shortens the time."""
    if board is None or extended_to is None:
        return board
    return max(board, extended_to)


def check_rate(board: str, kind: Category, limits: LimitsAndUse, now: datetime) -> None:
    """Refuse a submission over the hourly limit, saying when the next one is allowed."""
    if limits.most_per_hour is None:
        return
    recent = sorted(at for at in limits.recent_at if at > now - WINDOW)
    if len(recent) < limits.most_per_hour:
        return
    # The next one is allowed when enough of these are an hour old to be one below the limit.
    free_at = recent[len(recent) - limits.most_per_hour] + WINDOW if limits.most_per_hour else now + WINDOW
    raise QuotaSpent(
        f"{kind} submissions to {board} per hour", used=len(recent), limit=limits.most_per_hour, resets_at=free_at
    )


def check_quota(where: str, limits: LimitsAndUse, now: datetime) -> None:
    """Refuse people who have used up today's GPU time. Running jobs may finish."""
    if limits.quota_gpu_s is None or limits.used_gpu_s + limits.reserved_gpu_s < limits.quota_gpu_s:
        return
    if limits.used_gpu_s < limits.quota_gpu_s:
        raise QuotaSpent(
            f"GPU-seconds {where} within a day, with its open runs",
            used=round(limits.used_gpu_s + limits.reserved_gpu_s, 1),
            limit=limits.quota_gpu_s,
            resets_at=now + RUNS_END,
        )
    first = limits.oldest_use_at or now
    raise QuotaSpent(
        f"GPU-seconds {where} within a day",
        used=round(limits.used_gpu_s, 1),
        limit=limits.quota_gpu_s,
        resets_at=first + QUOTA_WINDOW,
    )


def check(board: str, mode: Mode, limits: LimitsAndUse, now: datetime, *, staff: bool, service: bool = False) -> None:
    """All rules for a submission beyond the intake's own. `service`: it came by a service token, whose own quota these
    limits have."""
    if staff:
        return
    check_rate(board, category(mode), limits, now)
    check_quota("by this service token" if service else f"on {board}", limits, now)
    gpu_budgets.check(limits.budgets, now)


def check_invites(boards: Sequence[str], count: int) -> None:
    """Refuse invitations without boards, or too many at once."""
    if not boards:
        raise Invalid("an invitation needs at least one board", hint="Name the boards.")
    if not 1 <= count <= MOST_CODES:
        raise Invalid(f"can't make {count} invitations at once", hint=f"Choose 1 to {MOST_CODES}.")


def check_claim(code: str, *, revoked: bool, claimed_by: int | None, person: int) -> bool:
    """Whether the invitation is unclaimed; False: this person has claimed it. Refused if someone else has."""
    if revoked:
        raise NotFound("invitation", code)
    if claimed_by is not None and claimed_by != person:
        raise Refused("this invitation was claimed by someone else", hint="Ask a host for another.")
    return claimed_by is None
