"""The shapes of what the API takes and answers, for the OpenAPI document and for the tests that hold answers to it.

Answers are not built from these at run time: a poll is answered far more often than anything else, and its shape is
held by a test instead.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[int, Field(ge=0, le=2**63 - 1)]


class Shape(BaseModel):
    """Nothing but what is listed."""

    model_config = ConfigDict(extra="forbid")


class Failure(Shape):
    """Every error: one sentence and what to do next."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"detail": "there is no board 'sort'."}})
    detail: str


class Health(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"status": "ok"}})
    status: Literal["ok"]


class RunnerQueue(Shape):
    """How it stands with a GPU type. `place` and `starts_in_s` (a range) are there while a submission waits."""

    runner: str
    gpu: str
    queued_jobs: int | None
    running_jobs: int | None
    available_runners: int | None
    status: Literal["available", "unavailable"]
    error: str | None
    place: int | None = None
    starts_in_s: list[float] | None = None


RQ: Any = {
    "runner": "kbslurm",
    "gpu": "H100",
    "queued_jobs": 3,
    "running_jobs": 2,
    "available_runners": 0,
    "status": "available",
    "error": None,
    "place": 2,
    "starts_in_s": [40.0, 190.0],
}


class Leaderboard(Shape):
    """A board as anybody may know it. `task` says what is judged: no secret seed, no hidden case."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "id": 1,
                "name": "transpose",
                "description": "Transpose a matrix.",
                "task": {"lang": "py", "tests": [{"size": 64, "seed": 1}], "ranking_by": "geom"},
                "deadline": "2026-12-24T23:59:59+00:00",
                "gpu_types": ["H100"],
                "visibility": "public",
                "zone": "UTC",
                "is_open": True,
            }
        },
    )
    id: Id
    name: str
    description: str
    task: dict[str, Any]
    deadline: str | None
    gpu_types: list[str]
    visibility: Literal["public", "closed"]
    zone: str
    is_open: bool


class Details(Shape):
    id: Id
    job_status_id: Id


class Accepted(Shape):
    """It will not be lost any more."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"status": "accepted", "details": {"id": 412, "job_status_id": 690}, "runner_queue": RQ}
        },
    )
    status: Literal["accepted"]
    details: Details
    runner_queue: RunnerQueue


class Run(Shape):
    """One phase of a run. Of a secret one only whether it passed."""

    start_time: str | None
    end_time: str | None
    mode: str
    secret: bool
    runner: str
    score: str | None
    passed: bool
    result: dict[str, str]


class Job(Shape):
    status: Literal["pending", "running", "succeeded", "failed", "timed_out", "hacked"]
    error: str | None
    last_heartbeat: str | None


class Submission(Shape):
    """A submission as its owner may see it."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "id": 412,
                "leaderboard_id": 1,
                "leaderboard_name": "transpose",
                "file_name": "kernel.py",
                "user_id": "7",
                "submission_time": "2026-05-01T12:00:00+00:00",
                "mode": "leaderboard",
                "done": True,
                "code": "def custom_kernel(data):\n    ...\n",
                "runs": [
                    {
                        "start_time": "2026-05-01T12:00:05+00:00",
                        "end_time": "2026-05-01T12:00:09+00:00",
                        "mode": "leaderboard",
                        "secret": False,
                        "runner": "H100",
                        "score": "0.000041836",
                        "passed": True,
                        "result": {},
                    }
                ],
                "job": {"status": "succeeded", "error": None, "last_heartbeat": "2026-05-01T12:00:12+00:00"},
                "runner_queue": None,
            }
        },
    )
    id: Id
    leaderboard_id: Id
    leaderboard_name: str
    file_name: str
    user_id: str
    submission_time: str
    mode: Literal["test", "benchmark", "leaderboard", "profile"]
    done: bool
    code: str
    runs: list[Run]
    job: Job
    runner_queue: RunnerQueue | None


class LineRun(Shape):
    gpu_type: str
    score: float | None


class SubmissionLine(Shape):
    """A submission in a list."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "id": 412,
                "leaderboard_name": "transpose",
                "file_name": "kernel.py",
                "submission_time": "2026-05-01T12:00:00+00:00",
                "mode": "leaderboard",
                "done": True,
                "status": "succeeded",
                "runs": [{"gpu_type": "H100", "score": 0.000041836}],
            }
        },
    )
    id: Id
    leaderboard_name: str
    file_name: str
    submission_time: str
    mode: Literal["test", "benchmark", "leaderboard", "profile"]
    done: bool
    status: str
    runs: list[LineRun]


class Standing(Shape):
    """One line of a leaderboard; `interval` is that of the measurement, `tied_with` the ranks it can't be told from."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "submission_id": 412,
                "rank": 1,
                "submission_name": "kernel.py",
                "submission_time": "2026-05-01T12:00:00+00:00",
                "submission_score": 0.000041836,
                "leaderboard_name": "transpose",
                "user_id": "7",
                "user_name": "ada",
                "gpu_type": "H100",
                "interval": [0.0000417, 0.000042],
                "tied_with": [2],
            }
        },
    )
    submission_id: Id
    rank: int
    submission_name: str
    submission_time: str
    submission_score: float
    leaderboard_name: str
    user_id: str
    user_name: str
    gpu_type: str
    interval: list[float]
    tied_with: list[int]


class Count(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"count": 12}})
    count: int


class Fine(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"status": "ok"}})
    status: Literal["ok"]


class Pending(Shape):
    """A token that nobody has yet; it is linked on Discord, on our page, or by a host."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"state": "kZ0…"}})
    state: str


class Code(Shape):
    """An invitation."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"code": "H7K2-9QXW-4MZT"}})
    code: Annotated[str, Field(min_length=1, max_length=64)]


class Joined(Shape):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"status": "ok", "leaderboards": ["transpose"]}}
    )
    status: Literal["ok"]
    leaderboards: list[str]


class Ascii(JSONResponse):
    """JSON without a character that isn't ASCII, on one line: whoever cuts it anywhere cuts no letter."""

    def render(self, content: Any) -> bytes:
        import json

        return json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


FAILURES = {
    400: "The request isn't what it must be, or doesn't say who sends it.",
    401: "The token isn't known or was revoked.",
    403: "Not yours, not open to you, or not now.",
    404: "There is no such thing.",
    408: "The upload came too slowly.",
    413: "The upload is too large.",
    422: "A value of the request isn't one.",
    429: "Too much for now; `detail` says when to try again.",
    500: "The server is misconfigured, or has a bug; its log says more.",
    503: "Submissions are paused, or the database can't be reached.",
}


def answers(model: Any, *failures: int, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """What a call may answer, for OpenAPI: its shape, and the failures that it can have beside 422, 500 and 503."""
    found: dict[int | str, dict[str, Any]] = {status: {"model": model, "description": "As asked."}}
    for code in sorted({*failures, 422, 500, 503}):
        found[code] = {"model": Failure, "description": FAILURES[code]}
    return found
