"""A board's times: deadline, late submissions, extensions, freeze."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from kbslurm.contract.base import Shape, Wanted

LATE_EXAMPLE: JsonDict = {
    "until": "2026-12-26T23:59:59+00:00",
    "grace_s": 900.0,
    "percent": 10.0,
    "per": "day",
    "slip_days": 2,
    "in_words": "late submissions until 2026-12-26 23:59 UTC, the first 15 min cost nothing, 2 slip days per person,"
    " 10 % of the points lost per day begun",
}
Moment = Annotated[str, Field(min_length=1, max_length=64)]


class LateTold(Shape):
    """What being late costs. `until` null: nothing is accepted after the deadline."""

    until: str | None
    grace_s: float
    percent: float
    per: Literal["hour", "day"]
    slip_days: int
    in_words: str


class ExtensionTold(Shape):
    """A later deadline, of one person or of a section."""

    person: str | None
    section: str | None
    until: str


class BoardTimes(Shape):
    """`frozen_at`: standings show others what was submitted until then; it may lie ahead. `zone` is the board's, in
    which people see its times."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "leaderboard": "transpose",
                "zone": "UTC",
                "deadline": "2026-12-24T23:59:59+00:00",
                "closed_at": None,
                "late": LATE_EXAMPLE,
                "frozen_at": None,
                "is_frozen": False,
                "finalised_at": None,
                "extensions": [{"person": "ada", "section": None, "until": "2026-12-25T18:00:00+00:00"}],
            }
        },
    )
    leaderboard: str
    zone: str
    deadline: str | None
    closed_at: str | None
    late: LateTold
    frozen_at: str | None
    is_frozen: bool
    finalised_at: str | None
    extensions: list[ExtensionTold]


class LateWanted(Wanted):
    """What is left out or null stays. `until`: as for a deadline, or `none`: no late submissions; `grace`: `15m`,
    `2h`, `1d`."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"until": "2026-12-26", "grace": "15m", "percent": 10, "per": "day"}}
    )
    until: Moment | None = None
    grace: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    percent: Annotated[float, Field(ge=0, le=100)] | None = None
    per: Literal["hour", "day"] | None = None
    slip_days: Annotated[int, Field(ge=0, le=365)] | None = None


class FreezeWanted(Wanted):
    """`at`: as for a deadline; left out or null: now."""

    model_config = ConfigDict(json_schema_extra={"example": {"at": "2026-12-24 17:00"}})
    at: Moment | None = None
