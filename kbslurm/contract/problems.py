"""Problems and their versions, and updating boards from a repository of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import WITHOUT_NUL, Id, Shape, Wanted


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
                "warnings": [],
            }
        },
    )
    status: Literal["ok"]
    commit: str
    created: list[str]
    updated: list[str]
    skipped: list[Skipped]
    errors: list[Faulty]
    warnings: list[str]


class ProblemAdded(Shape):
    """`version` is the one that these files have, new or known; `warnings` name places within the upload. `inputs`:
    `checked` if generate_input's values can be made and sent, else `unchecked: ` and why that couldn't be tried."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"problem": "transpose", "version": 7, "digest": "3f1c", "warnings": [], "inputs": "checked"}
        },
    )
    problem: str
    version: Id
    digest: str
    warnings: list[str]
    inputs: str


class ProblemVersionTold(Shape):
    id: Id
    problem_id: Id
    name: str
    digest: str
    created_at: str
    inputs: str


class Problems(Shape):
    """Every version of every problem, by name and then oldest first."""

    problems: list[ProblemVersionTold]


class ProblemShown(Shape):
    """A problem as hosts see it: its files by name; `hidden` is the number of its hidden cases."""

    model_config = ConfigDict(extra="allow")
    name: str
    digest: str
    lang: str
    description: str
    modes: list[str]
    tests: list[dict[str, Any]]
    benchmarks: list[dict[str, Any]]
    hidden: int
    limits: dict[str, Any]
    warnings: list[str]
    inputs: str
