"""Trying a board at the places that run it, with a submission that is known to be right."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Id, Shape, Wanted
from kbslurm.contract.boards import BoardNamed


class PlaceOffered(Shape):
    name: str
    gpu_types: list[str]


class PlacesOffered(Shape):
    """Places that may be chosen for a try."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"places": [{"name": "della", "gpu_types": ["A100", "H100"]}]}}
    )
    places: list[PlaceOffered]


class VerifyWanted(Wanted):
    """`gpus`: the board's GPU types that are meant, `place`: the one that is; nothing is all of them."""

    model_config = ConfigDict(json_schema_extra={"example": {"mode": "test", "gpus": ["H100"]}})
    mode: Literal["test", "benchmark"] = "test"
    gpus: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=100)] | None = None
    place: Annotated[str, Field(max_length=64)] | None = None


class Verifies(BoardNamed):
    """`submission_ids`: one for each of `places`, perhaps one for types that none has now; `submission_id` is the
    first. `left_out`: GPU types that places offer and this board hasn't."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "status": "ok",
                "leaderboard": "transpose",
                "submission_id": 412,
                "submission_ids": [412, 413],
                "places": ["della", "modal"],
                "gpu_types": ["H100"],
                "left_out": ["A100"],
            }
        },
    )
    submission_id: Id
    submission_ids: list[Id]
    places: list[str]
    gpu_types: list[str]
    left_out: list[str]


class VerifiedRun(Shape):
    gpu: str
    place: str | None
    state: str
    backend: str | None
    attempts: int
    verdict: str | None
    took_s: float | None


class Verification(Shape):
    """How a canary stands, by place and GPU type; `place` is where it was ordered, `backend` who has it or had it."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "submission_id": 412,
                "submission_ids": [412],
                "leaderboard": "transpose",
                "mode": "test",
                "done": True,
                "runs": [
                    {
                        "gpu": "H100",
                        "place": "della",
                        "state": "scored",
                        "backend": "della",
                        "attempts": 1,
                        "verdict": "passed",
                        "took_s": 42.5,
                    }
                ],
            }
        },
    )
    submission_id: Id
    submission_ids: list[Id]
    leaderboard: str
    mode: Literal["test", "benchmark"]
    done: bool
    runs: list[VerifiedRun]
