"""A board's leaders measured against each other in one job, as hosts order and apply it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Id, Shape, Wanted


class FinalWanted(Wanted):
    """`gpu` may be left out where the board has one type; `top`: how many take part (default: 5)."""

    model_config = ConfigDict(json_schema_extra={"example": {"gpu": "H100", "top": 5}})
    gpu: Annotated[str, Field(max_length=64)] | None = None
    top: Annotated[int, Field(ge=2, le=1000)] | None = None


class FinalDecided(Wanted):
    model_config = ConfigDict(json_schema_extra={"example": {"gpu": "H100"}})
    gpu: Annotated[str, Field(max_length=64)] | None = None


class HostsRivalTold(Shape):
    place: int
    person: str
    submission: Id
    before_s: float
    verdict: str | None
    score_s: float | None
    interval_s: list[float] | None


class HostsGapTold(Shape):
    """How many times as long the one behind takes, and whether that exceeds measurement error."""

    ahead: str
    behind: str
    ratio: float
    interval: list[float]
    separated: bool


class HostsFinalTold(Shape):
    """`over`: it has ended; `measured`: with a result. `unjudged`: ranked runs that were accepted before it was ordered
    and are still open; it binds none of them."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "final": 2,
                "board": "transpose",
                "gpu": "H100",
                "state": "open",
                "run_state": "queued",
                "reason": "",
                "measured": False,
                "over": False,
                "unjudged": 0,
                "rivals": [
                    {
                        "place": 1,
                        "person": "ada",
                        "submission": 412,
                        "before_s": 0.001,
                        "verdict": None,
                        "score_s": None,
                        "interval_s": None,
                    }
                ],
                "gaps": [],
            }
        },
    )
    final: Id
    board: str
    gpu: str
    state: Literal["open", "applied", "forgotten"]
    run_state: str
    reason: str
    measured: bool
    over: bool
    unjudged: int
    rivals: list[HostsRivalTold]
    gaps: list[HostsGapTold]
