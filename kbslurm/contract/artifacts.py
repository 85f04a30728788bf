"""The files of profiles."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from kbslurm.contract.base import Shape


class ArtifactTold(Shape):
    """A profile's file: its bytes come from the submission, its name from the judge."""

    gpu: str
    name: str
    size: int
    at: str
    url: str


class Artifacts(Shape):
    """The files of a submission's profiles."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "status": "ok",
                "submission_id": 412,
                "artifacts": [
                    {
                        "gpu": "H100",
                        "name": "benchmark-0.trace.json.gz",
                        "size": 48211,
                        "at": "2026-11-20T09:30:00+00:00",
                        "url": "/user/submissions/412/artifacts/H100/benchmark-0.trace.json.gz",
                    }
                ],
            }
        },
    )
    status: Literal["ok"]
    submission_id: int
    artifacts: list[ArtifactTold]
