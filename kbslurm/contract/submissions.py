"""A submission as popcorn-cli sees it, in full and in a list, and as hosts see it."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from kbslurm.contract.base import Id, Shape
from kbslurm.contract.queue import RQ, RunnerQueue


class Details(Shape):
    id: Id
    job_status_id: Id


class Cancelled(Shape):
    """`still_to_end`: how many of its jobs are running and will be killed."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"status": "ok", "still_to_end": 1}})
    status: Literal["ok"]
    still_to_end: int


class Accepted(Shape):
    """It is stored and can't be lost."""

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
    """One phase of a run. Of a secret one, only whether it passed. `not_ranked`: why a ranked phase that passed has no
    score."""

    start_time: str | None
    end_time: str | None
    mode: str
    secret: bool
    runner: str
    score: str | None
    not_ranked: str | None
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
                        "not_ranked": None,
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


class RunSummary(Shape):
    """`standing`: the verdict, or the run's state; `interval`: that of a ranked score; `not_ranked`: why a run that
    passed on a leaderboard has none."""

    gpu_type: str
    score: float | None
    standing: str
    interval: list[float] | None
    not_ranked: str | None


class SubmissionSummary(Shape):
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
                "runs": [
                    {
                        "gpu_type": "H100",
                        "score": 0.000041836,
                        "standing": "passed",
                        "interval": [0.0000417, 0.000042],
                        "not_ranked": None,
                    }
                ],
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
    runs: list[RunSummary]


class Count(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"count": 12}})
    count: int


class HostsSubmission(Submission):
    """A submission as hosts see it. `via`: where it came from; `agent` if an agent sent it by `kbslurm mcp`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={})
    user_name: str
    via: str
    removed_at: str | None
    log: str
    secret_log: str


class HostsSubmissionTold(Shape):
    status: Literal["ok"]
    submission: HostsSubmission


class HostsSubmissionSummary(SubmissionSummary):
    """A submission in a list, with whose it is, and `via` what it came."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={})
    user_id: str
    user_name: str
    via: str


class HostsSubmissions(Shape):
    submissions: list[HostsSubmissionSummary]


class Removed(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"status": "ok", "submission_id": 412}})
    status: Literal["ok"]
    submission_id: Id


class SubmissionIds(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"status": "ok", "leaderboard": "sort", "limit": 2, "offset": 0, "submission_ids": [412, 409]}
        },
    )
    status: Literal["ok"]
    leaderboard: str
    limit: int
    offset: int
    submission_ids: list[Id]
