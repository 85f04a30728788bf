"""Archives of boards, and work logs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from kbslurm.contract.base import WITHOUT_NUL, Id, Shape, Wanted


class ArchiveWanted(Wanted):
    """`place`: where it will be kept, for whoever has to write it again. `private`: everything, for one's own keeping;
    otherwise what may be handed on."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"private": False, "place": "login1:/home/hana/transpose-2026"}}
    )
    private: bool = False
    place: Annotated[str, Field(min_length=1, max_length=500, pattern=WITHOUT_NUL)]


class ArchiveLine(Shape):
    """A line of the answer: a table's name and one of its rows. The last table is `end`; without it something is
    missing."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"table": "images", "row": {"place": "hpc", "gpu": "H100", "image": "t.sif", "digest": "3f1c"}}
        },
    )
    table: str
    row: dict[str, Any]


class WorkLogRun(Shape):
    """How it went on one GPU type. `waited_s` until it began there, `ran_s` from then on."""

    gpu: str
    state: str
    verdict: str | None
    reason: str
    score_s: float | None
    low_s: float | None
    high_s: float | None
    ranked: bool
    ended_at: str | None
    waited_s: float | None
    ran_s: float | None
    profile: list[str]


class WorkLogEntry(Shape):
    """A submission. `diff`: the changed lines since `compared_with`, the one before; none of a deleted one."""

    submission: Id
    person: str
    at: str
    mode: str
    file_name: str
    via: str
    late_s: float
    deleted: bool
    compared_with: Id | None
    lines_added: int
    lines_removed: int
    diff: str
    runs: list[WorkLogRun]


class WorkLog(Shape):
    """What a person, or a team, has submitted to a board, oldest first, in parts: of all `of`
    there are `earlier` before these, and the next part comes with `after` as `next_after`."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "leaderboard": "transpose",
                "problem": "transpose",
                "deadline": None,
                "zone": "UTC",
                "person": "ada",
                "person_id": 7,
                "team": None,
                "written_at": "2026-12-24T09:00:00+00:00",
                "of": 0,
                "earlier": 0,
                "next_after": None,
                "submissions": [],
            }
        },
    )
    leaderboard: str
    problem: str
    deadline: str | None
    zone: str
    person: str | None
    person_id: Id | None
    team: str | None
    written_at: str
    of: Id
    earlier: Id
    next_after: Id | None
    submissions: list[WorkLogEntry]
