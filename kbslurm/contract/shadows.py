"""Measuring a submission at another place as well, and how the times differ."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Id, Shape, Wanted


class ShadowWanted(Wanted):
    """Another `place`, or `cold`: the same one, but a job of its own instead of a warm worker."""

    model_config = ConfigDict(json_schema_extra={"example": {"place": "modal"}})
    place: Annotated[str, Field(max_length=64)] | None = None
    cold: bool = False


class ShadowOrdered(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"submission": 412, "place": "modal", "cold": False, "runs": [691]}},
    )
    submission: Id
    place: str
    cold: bool = False
    runs: list[Id]


class DriftTold(Shape):
    """Times there are `ratio` times those at home, between `low` and `high` with 95 % confidence."""

    ratio: float
    low: float
    high: float
    pairs: int


class ShadowTold(Shape):
    place: str
    gpu: str
    open: int
    without_score: int
    drift: DriftTold | None
    is_drift: bool | None


class Shadows(Shape):
    leaderboard: str
    places: list[ShadowTold]
