"""The event feed."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict

from kbslurm.contract.base import Shape


class FeedLine(Shape):
    """One event. `subject` is like `run:12`; `token` is where a reader continues from."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "token": "e971",
                "type": "run.scored",
                "subject": "run:12",
                "data": {"submission": 412, "gpu": "H100", "verdict": "passed"},
                "at": "2026-05-01T12:00:12+00:00",
            }
        },
    )
    token: str
    type: str
    subject: str
    data: dict[str, Any]
    at: str
