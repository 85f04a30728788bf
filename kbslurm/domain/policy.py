"""What the hosts decided about who may do what, how often, until when: pure, one function each. Facts are the caller's.

Staff are outside of limits, quotas and deadlines: they try things out. A ban holds for everybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args

from kbslurm.errors import Invalid, NotFound, QuotaSpent, Refused
from kbslurm_eval.shared.wire import Mode

Category = Literal["test", "leaderboard"]

WINDOW = timedelta(hours=1)
QUOTA_WINDOW = timedelta(days=1)
MOST_PER_HOUR = 1_000_000
MOST_CODES = 10_000


@dataclass(frozen=True, kw_only=True)
class LimitsAndUse:
    """What has to be known of a person and a board beside the intake, in one read.

    `recent_at` are the moments of the person's submissions of this category to this board within the last hour,
    `used_gpu_s` the GPU-seconds that the person's runs on this board held within the last day, and `oldest_use_at`
    when the first of these ended.
    """

    invited: bool = False
    extended_to: datetime | None = None
    most_per_hour: int | None = None
    recent_at: Sequence[datetime] = ()
    quota_gpu_s: float | None = None
    used_gpu_s: float = 0.0
    oldest_use_at: datetime | None = None


def category(mode: Mode) -> Category:
    """What a mode counts as: ranked submissions for themselves, everything else together."""
    return "leaderboard" if mode == "leaderboard" else "test"


def category_named(text: str) -> Category:
    """The category of that name, or Invalid."""
    for known in get_args(Category):
        if text.strip().lower() == known:
            return category(known)
    raise Invalid(f"there is no category {text!r}", hint="test (also benchmark and profile) or leaderboard.")


def per_hour(most: int) -> int:
    """The rate as it is kept, or Invalid."""
    if not 0 <= most <= MOST_PER_HOUR:
        raise Invalid(f"{most} submissions per hour is no limit", hint=f"0 to {MOST_PER_HOUR}.")
    return most


def deadline(board: datetime | None, extended_to: datetime | None) -> datetime | None:
    """When the board closes for this person: an extension never takes time away."""
    if board is None or extended_to is None:
        return board
    return max(board, extended_to)


def check_rate(board: str, kind: Category, limits: LimitsAndUse, now: datetime) -> None:
    """Refuse one submission too many within the hour; it says when the next one may come."""
    if limits.most_per_hour is None:
        return
    recent = sorted(at for at in limits.recent_at if at > now - WINDOW)
    if len(recent) < limits.most_per_hour:
        return
    # The next one may come when so many of these are an hour old that one is missing to the limit.
    free_at = recent[len(recent) - limits.most_per_hour] + WINDOW if limits.most_per_hour else now + WINDOW
    raise QuotaSpent(
        f"{kind} submissions to {board} per hour", used=len(recent), limit=limits.most_per_hour, resets_at=free_at
    )


def check_quota(board: str, limits: LimitsAndUse, now: datetime) -> None:
    """Refuse whoever has used up their GPU time of the day. What runs already is let run to its end."""
    if limits.quota_gpu_s is None or limits.used_gpu_s < limits.quota_gpu_s:
        return
    first = limits.oldest_use_at or now
    raise QuotaSpent(
        f"GPU-seconds on {board} within a day",
        used=round(limits.used_gpu_s, 1),
        limit=limits.quota_gpu_s,
        resets_at=first + QUOTA_WINDOW,
    )


def check(board: str, mode: Mode, limits: LimitsAndUse, now: datetime, *, staff: bool) -> None:
    """All that a submission has to pass beside the intake's own rules."""
    if staff:
        return
    check_rate(board, category(mode), limits, now)
    check_quota(board, limits, now)


def check_invites(boards: Sequence[str], count: int) -> None:
    """Refuse invitations to nothing, or too many at once."""
    if not boards:
        raise Invalid("an invitation is to at least one board", hint="Name its boards.")
    if not 1 <= count <= MOST_CODES:
        raise Invalid(f"{count} invitations can't be made at once", hint=f"1 to {MOST_CODES}.")


def check_claim(code: str, *, revoked: bool, claimed_by: int | None, person: int) -> bool:
    """Whether the invitation is still to be taken; False: this person has it. Refused when somebody else has."""
    if revoked:
        raise NotFound("invitation", code)
    if claimed_by is not None and claimed_by != person:
        raise Refused("this invitation was taken up by somebody else", hint="Ask a host for another.")
    return claimed_by is None
