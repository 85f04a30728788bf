"""The state of a GPU type's queue."""

from __future__ import annotations

from typing import Any, Literal

from kbslurm.contract.base import Shape


class RunnerQueue(Shape):
    """The state of a GPU type's queue. `place` and `starts_in_s` (a range) are present while a submission is queued;
    `waits_for` while its job is waiting at its place and that place says why."""

    runner: str
    gpu: str
    queued_jobs: int | None
    running_jobs: int | None
    available_runners: int | None
    status: Literal["available", "unavailable"]
    error: str | None
    place: int | None = None
    starts_in_s: list[float] | None = None
    waits_for: str | None = None


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
