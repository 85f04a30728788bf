"""Final standings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Shape, Wanted


class FinaliseWanted(Wanted):
    """`top`: how many take part in each final (5); `finals` false: none is measured; `again`: fix anew what is final
    already; `note`: why, for the audit log."""

    model_config = ConfigDict(json_schema_extra={"example": {"top": 5, "note": "after the appeals"}})
    top: Annotated[int, Field(ge=2, le=64)] | None = None
    finals: bool | None = None
    again: bool | None = None
    note: Annotated[str, Field(max_length=200)] | None = None


class UnfinaliseWanted(Wanted):
    """`note`: why, for the audit log."""

    model_config = ConfigDict(json_schema_extra={"example": {"note": "an appeal is open"}})
    note: Annotated[str, Field(max_length=200)] | None = None


class Finalised(Shape):
    """`measuring`: finals are running on these GPU types, and nothing is fixed yet. `open`: standings follow from the
    verdicts."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "leaderboard": "transpose",
                "state": "final",
                "measuring": [],
                "finalised_at": "2026-12-28T09:00:00+00:00",
                "zone": "UTC",
            }
        },
    )
    leaderboard: str
    state: Literal["measuring", "final", "open"]
    measuring: list[str]
    finalised_at: str | None
    zone: str
