"""Hosts' calls about how much a person may submit or use."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path

from kbslurm.api import identity, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, held
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Name
from kbslurm.contract.limits import Quota, QuotaTold, RateLimitGone, RateLimits, RateLimitSet, RateLimitWanted
from kbslurm.store.views import RateLimit

Category = Annotated[Literal["test", "leaderboard"], Path(description="The category that modes count towards.")]


def add_limits(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    path = "/leaderboards/{leaderboard}/rate-limits"

    @router.put(path, responses=answers(RateLimitSet, *HOSTS_FAILURES))
    def put(leaderboard: Name, wanted: RateLimitWanted, sender: Sender) -> Ascii:
        """Set how many submissions of a category a person may make to a board per hour."""
        by = identity.host(context, sender)
        found = context.store.limits.set_rate(
            held(context, leaderboard).name,
            wanted.mode_category,
            wanted.max_submissions_per_hour,
            by=by,
            now=context.clock.now(),
        )
        return Ascii({"status": "ok", "rate_limit": rate_limit(found)})

    @router.get(path, responses=answers(RateLimits, *HOSTS_FAILURES))
    def get(leaderboard: Name, sender: Sender) -> Ascii:
        """A board's rate limits."""
        identity.host(context, sender)
        found = context.store.limits.rates(held(context, leaderboard).name)
        return Ascii({"rate_limits": [rate_limit(one) for one in found]})

    @router.delete(path + "/{category}", responses=answers(RateLimitGone, *HOSTS_FAILURES))
    def delete(leaderboard: Name, category: Category, sender: Sender) -> Ascii:
        """Remove a rate limit."""
        by = identity.host(context, sender)
        board = held(context, leaderboard)
        context.store.limits.drop_rate(board.name, category, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "leaderboard": board.name, "mode_category": category})

    @router.put("/leaderboards/{leaderboard}/quota", responses=answers(QuotaTold, *HOSTS_FAILURES))
    def quota(leaderboard: Name, wanted: Quota, sender: Sender) -> Ascii:
        """Set how many GPU-seconds a person may use on a board per day; null: no limit."""
        by = identity.host(context, sender)
        board = held(context, leaderboard)
        context.store.limits.set_quota(board.name, wanted.gpu_s_per_day, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "leaderboard": board.name, "gpu_s_per_day": wanted.gpu_s_per_day})


def rate_limit(found: RateLimit) -> dict[str, Any]:
    """A rate limit in popcorn's format."""
    return {
        "leaderboard": found.board,
        "mode_category": found.category,
        "max_submissions_per_hour": found.most_per_hour,
    }
