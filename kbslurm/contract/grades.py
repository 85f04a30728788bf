"""Grades of a board."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Id, Shape, Wanted

SCHEME = 'gpu = "H100"\nby = "time"\npassed = 40\n\n[[steps]]\nat_most = "2 ms"\npoints = 100\n'


class GradesWanted(Wanted):
    """`scheme`: the grading scheme in TOML."""

    model_config = ConfigDict(json_schema_extra={"example": {"scheme": SCHEME}})
    scheme: Annotated[str, Field(max_length=65_536)]


class GradeTold(Shape):
    """Somebody's points, and in `why` how they came about. `extra`: the other columns of the roster's file.
    `submission` is the one that counts; `late_s` to `before_penalty` are about it."""

    person_id: Id
    name: str
    full_name: str | None
    email: str | None
    student_id: str | None
    section: str | None
    team: str | None
    extra: dict[str, Any]
    points: float
    of: float
    submission: Id | None
    score_s: float | None
    late_s: float
    slip_days: int
    lost_percent: float
    before_penalty: float
    handed_in: int
    why: list[str]


class GradesTold(Shape):
    """Everybody's grade. `open_runs`: how many runs could still change them."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "leaderboard": "transpose",
                "gpu": "H100",
                "by": "time",
                "of": 100.0,
                "late": "no late submissions",
                "open_runs": 0,
                "grades": [],
            }
        },
    )
    leaderboard: str
    gpu: str
    by: Literal["time", "speedup", "light", "rank"]
    of: float
    late: str
    open_runs: int
    grades: list[GradeTold]
