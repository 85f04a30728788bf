"""Budgets in GPU-hours at home, and what is used of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Id, Shape, Wanted

_TEXT = Annotated[str, Field(max_length=254)]


class BudgetHeld(Shape):
    """What the course, a section or a person has used of a budget: by what has ended, by open runs at most, and what
    that leaves. `percent` and `cost` are of what has ended. `state`: `low` from 80 %, `spent` when nothing more is
    accepted."""

    name: str
    used_gpu_hours: float
    open_gpu_hours: float
    left_gpu_hours: float
    percent: float
    cost: float
    state: Literal["ok", "low", "spent"]


class BudgetTold(Shape):
    """`each`: every section or person has as much, unless one has a budget of its own. `gpu` null: on all types."""

    scope: Literal["course", "section", "person"]
    section: str | None
    person_id: Id | None
    person: str | None
    each: bool
    gpu: str | None
    gpu_hours: float
    begins: str | None
    until: str | None
    holds_now: bool
    in_words: str
    held: list[BudgetHeld]


class Budgets(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "course": "gpu-2026",
                "currency": "EUR",
                "budgets": [
                    {
                        "scope": "person",
                        "section": None,
                        "person_id": None,
                        "person": None,
                        "each": True,
                        "gpu": None,
                        "gpu_hours": 2.0,
                        "begins": None,
                        "until": "2026-12-24T23:59:59+00:00",
                        "holds_now": True,
                        "in_words": "each person: 2 GPU-hours until 2026-12-24 23:59 UTC",
                        "held": [
                            {
                                "name": "Ada Lovelace",
                                "used_gpu_hours": 1.7,
                                "open_gpu_hours": 0.05,
                                "left_gpu_hours": 0.25,
                                "percent": 85.0,
                                "cost": 0.0,
                                "state": "low",
                            }
                        ],
                    }
                ],
            }
        },
    )
    course: str
    currency: str
    budgets: list[BudgetTold]


class BudgetWanted(Wanted):
    """Of the whole course, or of a section, a person, or each of them. `gpu_hours` null takes the budget away. Times
    are in UTC unless they say otherwise; a date alone is all of that day."""

    model_config = ConfigDict(json_schema_extra={"example": {"gpu_hours": 2, "each": "person", "until": "2026-12-24"}})
    gpu_hours: Annotated[float, Field(ge=0, le=1_000_000)] | None
    section: _TEXT | None = None
    person: _TEXT | None = None
    each: Literal["section", "person"] | None = None
    gpu: _TEXT | None = None
    begins: _TEXT | None = None
    until: _TEXT | None = None
