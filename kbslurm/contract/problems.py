"""Updating boards from a repository of problems."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import WITHOUT_NUL, Shape, Wanted


class SyncWanted(Wanted):
    """`repository`: https:// or file:/// URL, a directory on the server, or OWNER/NAME. Without `problem_set`: all."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"repository": "example/problems", "problem_set": "spring", "branch": "main", "force": False}
        },
    )
    repository: Annotated[str, Field(min_length=1, max_length=1000, pattern=WITHOUT_NUL)]
    problem_set: Annotated[str, Field(max_length=200, pattern=WITHOUT_NUL)] | None = None
    branch: Annotated[str, Field(max_length=200, pattern=WITHOUT_NUL)] | None = None
    force: bool | None = None
    visibility: Literal["public", "closed"] | None = None


class Skipped(Shape):
    name: str
    reason: str


class Faulty(Shape):
    name: str
    error: str


class SyncTold(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "status": "ok",
                "commit": "3f1c",
                "created": ["transpose"],
                "updated": [],
                "skipped": [{"name": "sort", "reason": "unchanged"}],
                "errors": [{"name": "scan", "error": "task.yml:3: tests: there are none"}],
            }
        },
    )
    status: Literal["ok"]
    commit: str
    created: list[str]
    updated: list[str]
    skipped: list[Skipped]
    errors: list[Faulty]
