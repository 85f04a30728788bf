"""Warm workers: jobs that hold a GPU for a while, so that runs start in them at once."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Id, Shape, Wanted


class WarmWanted(Wanted):
    """How many to start. `place` and `gpu` may be left out where only one allows any."""

    model_config = ConfigDict(json_schema_extra={"example": {"count": 2, "place": "dgx", "gpu": "H100"}})
    count: Annotated[int, Field(ge=1, le=64)] = 1
    place: Annotated[str, Field(max_length=64)] | None = None
    gpu: Annotated[str, Field(max_length=64)] | None = None


class WarmDrain(Wanted):
    """Which to let go: one by its number, those of a place or GPU type, or `every` one. None of them is refused."""

    model_config = ConfigDict(json_schema_extra={"example": {"worker": 7}})
    worker: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None
    place: Annotated[str, Field(max_length=64)] | None = None
    gpu: Annotated[str, Field(max_length=64)] | None = None
    every: bool = False


class WarmWorker(Shape):
    """One that may hold a GPU. `held_s`: since it began; null while it waits. `idle_s`: how long it has had no run;
    `ends_in_s`: until its time is over. `others`: whether other people's jobs waited at the last look."""

    worker: Id
    job: str
    handle: str | None
    place: str
    gpu: str
    state: Literal["asked", "intent", "ambiguous", "submitted", "holding", "draining"]
    node: str | None
    age_s: float
    held_s: float | None
    served: int
    busy: bool
    idle_s: float
    ends_in_s: float | None
    why: str
    asked_by: str | None
    leaving: str
    others: Literal["", "yes", "no", "unknown"]


class WarmRule(Shape):
    """What a site allows for a GPU type, what its workers held and left idle within a day, and why there are so many.
    `may_start` is null if a host may start one now, else what is against it."""

    place: str
    gpu: str
    most: int
    idle_s: float
    life_s: float
    hours: list[str]
    give_back: bool
    open: int
    held_s: float
    used_s: float
    idle_share: float
    why: str
    may_start: str | None


class WarmTold(Shape):
    """All of them, and what the sites allow. `started` and `drained`: what this call did."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "workers": [
                    {
                        "worker": 7,
                        "job": "kbk-4n2lq6zfh3v7m5t5w2k4y6p3aa",
                        "handle": "88140",
                        "place": "dgx",
                        "gpu": "H100",
                        "state": "holding",
                        "node": "gpu07",
                        "age_s": 640.0,
                        "held_s": 612.0,
                        "served": 41,
                        "busy": True,
                        "idle_s": 0.0,
                        "ends_in_s": 13788.0,
                        "why": "99 runs waiting, about 13 s each, 9 in the last 30 min: enough work for 1 warm worker",
                        "asked_by": None,
                        "leaving": "",
                        "others": "no",
                    }
                ],
                "rules": [
                    {
                        "place": "dgx",
                        "gpu": "H100",
                        "most": 2,
                        "idle_s": 300.0,
                        "life_s": 14400.0,
                        "hours": [],
                        "give_back": True,
                        "open": 1,
                        "held_s": 9200.0,
                        "used_s": 8300.0,
                        "idle_share": 0.0978,
                        "why": "no run waits",
                        "may_start": None,
                    }
                ],
                "started": [],
                "drained": [],
            }
        },
    )
    workers: list[WarmWorker]
    rules: list[WarmRule]
    started: list[Id] = Field(default_factory=list)
    drained: list[Id] = Field(default_factory=list)
