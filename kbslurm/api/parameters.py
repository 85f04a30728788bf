"""Parameters that several calls share, with their bounds."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from kbslurm.domain import contest

Name = Annotated[str, Path(max_length=contest.NAME_CAP, description="A board's name, in any case.")]
Gpu = Annotated[str, Path(max_length=contest.NAME_CAP, description="A GPU type, in any case.")]
Number = Annotated[int, Path(ge=0, le=2**63 - 1, description="The submission's number.")]
RunNumber = Annotated[int, Path(ge=0, le=2**63 - 1, description="The run's number.")]
Limit = Annotated[int, Query(ge=1, le=100)]
Offset = Annotated[int, Query(ge=0, le=2**31 - 1)]
Entry = Annotated[
    str | None,
    Query(max_length=1000, description="The task.yml or reference file in the zip (default: its only task.yml)."),
]
Whom = Annotated[str, Path(max_length=100, description="A person's number, name, or discord:ID, github:ID.")]
