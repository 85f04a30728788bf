"""What popcorn-cli's `--profile-brev` calls: a profile of one benchmark or of several, as a job to poll."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict

from kbslurm.contract.base import Id, Shape


class ProfileAccepted(Shape):
    """The job's number, as text."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"job_id": "412", "status": "queued", "submission_id": 412}}
    )
    job_id: str
    status: Literal["queued"]
    submission_id: Id


class ProfileZip(Shape):
    """All files of one benchmark's profile as a zip; `name` is the file's."""

    name: str
    url: str


class ProfileJob(Shape):
    """A profile's state. `artifacts` once it has succeeded; `digests` say what limits the kernels, for programs."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "job_id": "412",
                "submission_id": 412,
                "status": "succeeded",
                "queue_position": None,
                "error": None,
                "artifacts": [
                    {"name": "profile.0-H100-rows-1.zip", "url": "/jobs/412/artifacts/H100/0"},
                ],
                "digests": [{"gpu": "H100", "benchmark": 0, "tool": "ncu", "limits": ["It is bound by memory."]}],
            }
        },
    )
    job_id: str
    submission_id: Id
    status: Literal["queued", "running", "succeeded", "failed", "timed_out"]
    queue_position: int | None
    error: str | None
    artifacts: list[ProfileZip]
    digests: list[dict[str, Any]]
