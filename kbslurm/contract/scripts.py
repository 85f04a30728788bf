"""Scripts that hosts run on a GPU without a board."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from kbslurm.contract.base import Id, Shape


class ScriptTold(Shape):
    """A script's state. `output` (stdout and stderr, in order and cut at 64 KiB) and `exit_status` are there once it
    has ended; a script that was stopped at its limit has none. `place` and `node`: of the latest attempt.
    `used_gpu_s`: what its author's scripts have used within a day, with open ones at their limit."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "script": 431,
                "file_name": "probe.py",
                "by": "ada",
                "gpu": "H100",
                "timeout_s": 60,
                "state": "scored",
                "done": True,
                "place": "della",
                "node": "gpu07",
                "attempts": 1,
                "verdict": "passed",
                "exit_status": 0,
                "reason": "exit status 0",
                "isolation": 2,
                "output": "NVIDIA H100 80GB HBM3\n",
                "took_s": 6.2,
                "used_gpu_s": 41.0,
                "gpu_s_per_day": 600.0,
            }
        },
    )
    script: Id
    file_name: str
    by: str
    gpu: str
    timeout_s: int
    state: Literal["queued", "launching", "running", "scored", "failed", "cancelled"]
    done: bool
    place: str | None
    node: str | None
    attempts: int
    verdict: str | None
    exit_status: int | None
    reason: str
    isolation: int | None
    output: str
    took_s: float | None
    used_gpu_s: float
    gpu_s_per_day: float
