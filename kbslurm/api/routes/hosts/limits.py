"""Hosts' calls about how much a person may submit or use."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path

from kbslurm.api import waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, helping
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Name
from kbslurm.contract.limits import (
    LimitsTold,
    Quota,
    QuotaTold,
    RateLimitGone,
    RateLimits,
    RateLimitSet,
    RateLimitWanted,
)

Category = Annotated[Literal["test", "leaderboard"], Path(description="The category that modes count towards.")]


def add_limits(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    path = "/leaderboards/{leaderboard}/rate-limits"

    @router.put(path, responses=answers(RateLimitSet, *HOSTS_FAILURES, 403))
    def put(leaderboard: Name, wanted: RateLimitWanted, sender: Sender) -> Ascii:
        """Set how many submissions of a category a person may make to a board per hour."""
        found = helping(context, sender, leaderboard, "run")
        return Ascii(found.set_rate_limit(leaderboard, wanted.mode_category, wanted.max_submissions_per_hour))

    @router.get(path, responses=answers(RateLimits, *HOSTS_FAILURES, 403))
    def get(leaderboard: Name, sender: Sender) -> Ascii:
        """A board's rate limits."""
        return Ascii({"rate_limits": helping(context, sender, leaderboard, "see").rate_limits(leaderboard)})

    @router.delete(path + "/{category}", responses=answers(RateLimitGone, *HOSTS_FAILURES, 403))
    def delete(leaderboard: Name, category: Category, sender: Sender) -> Ascii:
        """Remove a rate limit."""
        return Ascii(helping(context, sender, leaderboard, "run").set_rate_limit(leaderboard, category, None))

    @router.put("/leaderboards/{leaderboard}/quota", responses=answers(QuotaTold, *HOSTS_FAILURES, 403))
    def quota(leaderboard: Name, wanted: Quota, sender: Sender) -> Ascii:
        """Set how many GPU-seconds a person may use on a board per day; null: no limit."""
        return Ascii(helping(context, sender, leaderboard, "run").set_quota(leaderboard, wanted.gpu_s_per_day))

    @router.get("/leaderboards/{leaderboard}/limits", responses=answers(LimitsTold, *HOSTS_FAILURES, 403))
    def limits(leaderboard: Name, sender: Sender) -> Ascii:
        """All of a board's limits: submissions per hour by category, and GPU-seconds per day."""
        return Ascii(helping(context, sender, leaderboard, "see").limits(leaderboard))
