"""GPU-seconds and cost of a month."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Shape


class UsageRow(Shape):
    """`name` is null for people without a team; `budget` is the monthly budget, if there is one."""

    name: str | None
    attempts: int
    open: int
    runs: int
    gpu_s: float
    money: float
    paid_gpu_s: float
    budget: float | None


class WarmUsage(Shape):
    """What warm workers held in GPU-seconds, what runs used of it, and what was left."""

    place: str
    gpu: str
    workers: int
    runs: int
    held_s: float
    used_s: float
    idle_s: float


class UsageTold(Shape):
    """A month's usage (UTC), most expensive first; open runs count at their maximum. `warm`: what warm workers held
    beside that, of all boards."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "month": "2026-11",
                "by": "team",
                "board": None,
                "currency": "EUR",
                "budget": 200.0,
                "gpu_s": 5400.0,
                "money": 1.97,
                "warm": [
                    {
                        "place": "dgx",
                        "gpu": "H100",
                        "workers": 3,
                        "runs": 310,
                        "held_s": 9200.0,
                        "used_s": 8300.0,
                        "idle_s": 900.0,
                    }
                ],
                "rows": [
                    {
                        "name": "blue",
                        "attempts": 41,
                        "open": 2,
                        "runs": 40,
                        "gpu_s": 5400.0,
                        "money": 1.97,
                        "paid_gpu_s": 1800.0,
                        "budget": 20.0,
                    }
                ],
            }
        },
    )
    month: str
    by: Literal["board", "person", "team", "place", "run"]
    board: str | None
    currency: str
    budget: float | None
    gpu_s: float
    money: float
    warm: list[WarmUsage] = Field(default_factory=list)
    rows: list[UsageRow]
