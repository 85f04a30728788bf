"""How much a person may submit or use on a board."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Shape, Wanted
from kbslurm.contract.boards import BoardNamed


class RateLimitWanted(Wanted):
    model_config = ConfigDict(json_schema_extra={"example": {"mode_category": "test", "max_submissions_per_hour": 20}})
    mode_category: Literal["test", "leaderboard"]
    max_submissions_per_hour: Annotated[int, Field(ge=0, le=1_000_000)]


class RateLimitTold(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"leaderboard": "transpose", "mode_category": "test", "max_submissions_per_hour": 20}
        },
    )
    leaderboard: str
    mode_category: Literal["test", "leaderboard"]
    max_submissions_per_hour: int


class RateLimitSet(Shape):
    status: Literal["ok"]
    rate_limit: RateLimitTold


class RateLimits(Shape):
    rate_limits: list[RateLimitTold]


class RateLimitGone(BoardNamed):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"status": "ok", "leaderboard": "transpose", "mode_category": "test"}},
    )
    mode_category: Literal["test", "leaderboard"]


class LimitsTold(Shape):
    """Submissions per person and hour by category, and GPU-seconds per person and day; null: no limit."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"leaderboard": "transpose", "per_hour": {"test": 20}, "gpu_s_per_day": 600}},
    )
    leaderboard: str
    per_hour: dict[Literal["test", "leaderboard"], int]
    gpu_s_per_day: float | None


class Quota(Wanted):
    model_config = ConfigDict(json_schema_extra={"example": {"gpu_s_per_day": 600}})
    gpu_s_per_day: Annotated[float, Field(ge=0, le=1e9)] | None


class QuotaTold(BoardNamed):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"status": "ok", "leaderboard": "transpose", "gpu_s_per_day": 600}},
    )
    gpu_s_per_day: float | None
