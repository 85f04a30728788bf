"""Places where runs go: their state, draining, their log, and reading the configuration anew."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Shape, Wanted


class DrainWanted(Wanted):
    """Why, for everybody to read, and which GPU type; null: all of them."""

    model_config = ConfigDict(json_schema_extra={"example": {"why": "maintenance until noon", "gpu": None}})
    why: Annotated[str, Field(max_length=300)] = ""
    gpu: Annotated[str, Field(max_length=64)] | None = None


class ResumeWanted(Wanted):
    """Which GPU type; null: all of them."""

    model_config = ConfigDict(json_schema_extra={"example": {"gpu": None}})
    gpu: Annotated[str, Field(max_length=64)] | None = None


class DrainTold(Shape):
    """Since when, by whom and why it drains. `gpu` is empty where the whole place does."""

    gpu: str
    by: str
    why: str
    at: str


class PlaceGpu(Shape):
    """A GPU type there. `shut`: why the place itself takes no run for it at the moment."""

    gpu: str
    used: int
    slots: int
    gpu_class: str
    cost_per_gpu_hour: float
    draining: DrainTold | None
    shut: str


class PlaceTrouble(Shape):
    at: str
    text: str


class PlaceTold(Shape):
    """A place. `state`: open, draining (hosts let nothing new go there), resting (it failed, and is tried again by
    itself), or unknown (no daemon has told of it). `trouble`: the last attempt there that went wrong through no fault
    of its submission."""

    place: str
    kind: str
    role: Literal["home", "overflow", ""]
    state: Literal["open", "draining", "resting", "unknown"]
    why: str
    gpus: list[PlaceGpu]
    staff_only: bool
    currency: str
    trouble: PlaceTrouble | None


class PlacesTold(Shape):
    """All places, and what came of the last time that the configuration was read anew."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "places": [
                    {
                        "place": "dgx",
                        "kind": "slurm",
                        "role": "home",
                        "state": "draining",
                        "why": "by ada: maintenance until noon",
                        "gpus": [
                            {
                                "gpu": "H100",
                                "used": 3,
                                "slots": 8,
                                "gpu_class": "H100",
                                "cost_per_gpu_hour": 0.0,
                                "draining": {
                                    "gpu": "",
                                    "by": "ada",
                                    "why": "maintenance until noon",
                                    "at": "2026-11-28T09:00:00+00:00",
                                },
                                "shut": "",
                            }
                        ],
                        "staff_only": False,
                        "currency": "EUR",
                        "trouble": None,
                    }
                ],
                "reload": {},
            }
        },
    )
    places: list[PlaceTold]
    reload: dict[str, Any]


class PlaceLineTold(Shape):
    at: str
    level: str
    text: str


class PlaceLog(Shape):
    """The daemon's lines about a place and the attempts that went wrong there, oldest first."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "place": "dgx",
                "lines": [
                    {"at": "2026-11-28T09:00:00+00:00", "level": "warning", "text": 'trouble why="no answer"'},
                ],
            }
        },
    )
    place: str
    lines: list[PlaceLineTold]


class Reloaded(Shape):
    """What the leading daemon made of it. `changes`: in words; `restart`: settings that changed and only hold from the
    next start on."""

    order: str
    ok: bool
    why: str
    changes: list[str]
    restart: list[str]
    holder: str
    at: str


class ReloadOrdered(Shape):
    """The order, and who is to follow it. `leader` null: no daemon leads, and the next one reads it anyway; `ticks`:
    `kbslurm tick` does its work, which reads the configuration each time. `answer` null: it hasn't answered yet."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"order": "5f0e1d2c3b4a5968", "leader": "gpu1:4211:9ac3f1", "ticks": False, "answer": None}
        },
    )
    order: str
    leader: str | None
    ticks: bool
    answer: Reloaded | None
