"""The explanation of a run's state."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from kbslurm.contract.base import Id, Shape


class WhyAttempt(Shape):
    """One attempt and why it went there; `warm`: into a job that held a GPU already. Open ones count at their maximum
    cost; null unless the caller is staff."""

    number: int
    backend: str
    state: str
    ending: str | None
    why: str
    gpu_class: str
    ranks: bool
    warm: bool = False
    gpu_s: float
    cost: float | None


class WhyTold(Shape):
    """A run's state explained in sentences, with the facts behind them."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "run": 871,
                "submission": 412,
                "leaderboard": "sort",
                "gpu": "H100",
                "state": "queued",
                "verdict": None,
                "place": 3,
                "pinned": None,
                "why": ["it has waited 4 min; 2 runs for H100 are ahead of it", "cluster: all 4 slots are in use"],
                "attempts": [],
                "currency": "EUR",
            }
        },
    )
    run: Id
    submission: Id
    leaderboard: str
    gpu: str
    state: Literal["queued", "launching", "running", "scored", "failed", "cancelled"]
    verdict: str | None
    place: int | None
    pinned: str | None
    why: list[str]
    attempts: list[WhyAttempt]
    currency: str


class WhysTold(Shape):
    """The same for each run of a submission."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"runs": []}})
    runs: list[WhyTold]
