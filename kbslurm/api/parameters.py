"""Parameters that several calls share, with their bounds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Path, Query

from kbslurm.domain import contest
from kbslurm_eval.shared.wire import Mode, VerdictName

Name = Annotated[str, Path(max_length=contest.NAME_CAP, description="A board's name, in any case.")]
Gpu = Annotated[str, Path(max_length=contest.NAME_CAP, description="A GPU type, in any case.")]
Number = Annotated[int, Path(ge=0, le=2**63 - 1, description="The submission's number.")]
RunNumber = Annotated[int, Path(ge=0, le=2**63 - 1, description="The run's number.")]
QuestionNumber = Annotated[int, Path(ge=0, le=2**63 - 1, description="The question's number.")]
Limit = Annotated[int, Query(ge=1, le=100)]
Offset = Annotated[int, Query(ge=0, le=2**31 - 1)]
Entry = Annotated[
    str | None,
    Query(max_length=1000, description="The task.yml or reference file in the zip (default: its only task.yml)."),
]
OfVerdict = Annotated[VerdictName | None, Query(description="Only those of which a run has this verdict.")]
OfMode = Annotated[Mode | None, Query(description="Only this mode.")]
Since = Annotated[datetime | None, Query(description="Only those accepted since then; without an offset: UTC.")]
Whom = Annotated[
    str,
    Path(max_length=100, description="A person's number, name, e-mail address on a roster, or discord:ID, github:ID."),
]


def in_utc(since: datetime | None) -> datetime | None:
    """The time, in UTC where it says nothing else."""
    return since.replace(tzinfo=UTC) if since is not None and since.tzinfo is None else since
