"""Testing the places that run a board, with a known-correct submission."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Id, Shape, Wanted
from kbslurm.contract.boards import BoardNamed


class PlaceOffered(Shape):
    name: str
    gpu_types: list[str]


class PlacesOffered(Shape):
    """Places that may be chosen for a test run."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"places": [{"name": "della", "gpu_types": ["A100", "H100"]}]}}
    )
    places: list[PlaceOffered]


class VerifyWanted(Wanted):
    """`gpus`: these GPU types of the board; `place`: this place; left out: all of them."""

    model_config = ConfigDict(json_schema_extra={"example": {"mode": "test", "gpus": ["H100"]}})
    mode: Literal["test", "benchmark"] = "test"
    gpus: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=100)] | None = None
    place: Annotated[str, Field(max_length=64)] | None = None


class Verifies(BoardNamed):
    """`submission_ids`: one for each of `places`, and possibly one for types that no place has at the moment;
    `submission_id` is the first. `left_out`: GPU types that places offer but this board doesn't have."""

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
    """One run. `problem`: what is wrong with the problem's own statement, if the run shows it."""

    gpu: str
    place: str | None
    state: str
    backend: str | None
    attempts: int
    verdict: str | None
    took_s: float | None
    problem: str | None = None


class Verification(Shape):
    """A canary's state, by place and GPU type; `place` is where it was ordered, `backend` where it is or was."""

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
