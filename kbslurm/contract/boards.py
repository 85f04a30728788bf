"""Leaderboards: what anyone may know about one, and what hosts do with them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import WITHOUT_NUL, Id, Shape, Wanted
from kbslurm.domain.access import NamesShown, StandingsShown


class Leaderboard(Shape):
    """A board as anyone may see it. `task` is the problem: no secret seed, no hidden case.

    `late_until`: late submissions are accepted until then; `late` says what they cost. `frozen_at`: standings show what
    was submitted until then (it may lie ahead); `finalised_at`: when they were fixed. `teams_only`: whoever is in no
    team can't submit. `practice`: after the end it goes on taking submissions, which count nowhere. `names`: whether
    people are shown by their own names, by nicknames if they chose one, or by pseudonyms; `standings`: whether others
    see any, or people only their own place (`own`), or nobody anything. `publishes_reference`: whether
    GET /leaderboards/{leaderboard}/problem also has what submissions are judged by. `remarks` say all this in
    sentences.

    `paired`: scores are in units of a baseline's times, with the state in `calibration` by GPU type; else they are raw
    times. `notes` are remarks on the scores, by GPU type; usually empty.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "id": 1,
                "name": "transpose",
                "description": "Transpose a matrix.",
                "task": {"lang": "py", "tests": [{"size": 64, "seed": 1}], "ranking_by": "geom"},
                "deadline": "2026-12-24T23:59:59+00:00",
                "gpu_types": ["H100"],
                "visibility": "public",
                "zone": "UTC",
                "is_open": True,
                "late_until": None,
                "late": "no late submissions",
                "frozen_at": None,
                "finalised_at": None,
                "teams_only": False,
                "practice": False,
                "names": "real",
                "standings": "shown",
                "publishes_reference": False,
                "remarks": [],
                "paired": True,
                "calibration": {"H100": "calibrated"},
                "notes": {"H100": ""},
            }
        },
    )
    id: Id
    name: str
    description: str
    task: dict[str, Any]
    deadline: str | None
    gpu_types: list[str]
    visibility: Literal["public", "closed"]
    zone: str
    is_open: bool
    late_until: str | None
    late: str
    frozen_at: str | None
    finalised_at: str | None
    teams_only: bool
    practice: bool
    names: NamesShown
    standings: StandingsShown
    publishes_reference: bool
    remarks: list[str]
    paired: bool
    calibration: dict[str, Literal["calibrated", "calibrating", "failed"]]
    notes: dict[str, str]


class NewBoard(Wanted):
    """`directory` is on the server."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"directory": "/srv/problems/transpose", "visibility": "public"}},
    )
    directory: Annotated[str, Field(min_length=1, max_length=4096, pattern=WITHOUT_NUL)]
    visibility: Literal["public", "closed"] | None = None


class BoardNamed(Shape):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"status": "ok", "leaderboard": "transpose"}}
    )
    status: Literal["ok"]
    leaderboard: str


class BoardDeleted(BoardNamed):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"status": "ok", "leaderboard": "transpose", "force": False}}
    )
    force: bool


class NewVisibility(Wanted):
    model_config = ConfigDict(json_schema_extra={"example": {"visibility": "closed"}})
    visibility: Literal["public", "closed"]


class VisibilityTold(BoardNamed):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"status": "ok", "leaderboard": "transpose", "visibility": "closed"}},
    )
    visibility: Literal["public", "closed"]


class BoardEdit(Wanted):
    """What is left out or null stays. `deadline`: as for an extension, or `never`; `version`: of the problem, to rank
    by; `course` empty: of none."""

    model_config = ConfigDict(json_schema_extra={"example": {"description": "Faster.", "deadline": "2026-12-24 18:00"}})
    description: Annotated[str, Field(max_length=4000)] | None = None
    gpus: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=100)] | None = None
    deadline: Annotated[str, Field(max_length=64)] | None = None
    zone: Annotated[str, Field(max_length=64)] | None = None
    visibility: Literal["public", "closed"] | None = None
    min_isolation: Annotated[int, Field(ge=0, le=3)] | None = None
    version: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None
    cold: bool | None = None
    course: Annotated[str, Field(max_length=64)] | None = None
    teams: bool | None = None
    teams_only: bool | None = None
    practice: bool | None = None
    names: NamesShown | None = None
    standings: StandingsShown | None = None
    publishes_reference: bool | None = None
    reopen: bool | None = None


class BoardEdited(BoardNamed):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"status": "ok", "leaderboard": "transpose", "changed": ["description"], "warnings": []}
        },
    )
    changed: list[str]
    warnings: list[str]


class BoardOfProblem(Wanted):
    """A board on the newest version of a problem; `gpus` left out: the problem's own."""

    model_config = ConfigDict(json_schema_extra={"example": {"name": "turn", "problem": "transpose", "gpus": ["H100"]}})
    name: Annotated[str, Field(max_length=64)]
    problem: Annotated[str, Field(max_length=64)]
    gpus: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=100)] | None = None
    deadline: Annotated[str, Field(max_length=64)] | None = None
    zone: Annotated[str, Field(max_length=64)] | None = None
    description: Annotated[str, Field(max_length=4000)] | None = None
    visibility: Literal["public", "closed"] | None = None
    min_isolation: Annotated[int, Field(ge=0, le=3)] | None = None
    confirm: bool | None = None
    course: Annotated[str, Field(max_length=64)] | None = None
    teams: bool | None = None
    teams_only: bool | None = None
    practice: bool | None = None
    names: NamesShown | None = None
    standings: StandingsShown | None = None
    publishes_reference: bool | None = None


class Extended(BoardNamed):
    """Either `person` or `section` is null; `until` is null if it was removed; `zone` is the board's."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "status": "ok",
                "leaderboard": "transpose",
                "person": "ada",
                "section": None,
                "until": "2026-12-24T18:00:00+00:00",
                "zone": "UTC",
            }
        },
    )
    person: str | None
    section: str | None
    until: str | None
    zone: str


class Extension(Wanted):
    """Until when a person, or with `section:NAME` a section, may submit: `2026-12-24`, `2026-12-24 18:00`, or with a
    UTC offset; null removes it."""

    model_config = ConfigDict(json_schema_extra={"example": {"person": "person:7", "until": "2026-12-24 18:00"}})
    person: Annotated[str, Field(min_length=3, max_length=100)]
    until: Annotated[str, Field(max_length=64)] | None


class BoardTold(Shape):
    """A board as `kbslurm board create --json` shows it: no seed, no hidden case."""

    board: str
    description: str
    problem: str
    problem_digest: str
    gpus: list[str]
    deadline_at: str | None
    zone: str
    visibility: Literal["public", "closed"]
    closed_at: str | None
    late_until: str | None = None
    late: str = ""
    frozen_at: str | None = None
    finalised_at: str | None = None
    submissions: int | None
    confirm: bool
    cold: bool = False
    course: str | None = None
    teams: bool = False
    teams_only: bool = False
    practice: bool = False
    names: NamesShown = "real"
    standings: StandingsShown = "shown"
    publishes_reference: bool = False
    modes: list[str]


class BoardMade(BoardNamed):
    """`warnings` are the problem's, and GPU types that no place offers at the moment."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "status": "ok",
                "leaderboard": "transpose",
                "gpu_types": ["H100"],
                "warnings": [],
                "board": {
                    "board": "transpose",
                    "description": "Transpose a matrix.",
                    "problem": "transpose",
                    "problem_digest": "3f1c",
                    "gpus": ["H100"],
                    "deadline_at": None,
                    "zone": "UTC",
                    "visibility": "public",
                    "closed_at": None,
                    "late_until": None,
                    "late": "no late submissions",
                    "frozen_at": None,
                    "finalised_at": None,
                    "submissions": 0,
                    "confirm": True,
                    "cold": False,
                    "course": None,
                    "teams": False,
                    "teams_only": False,
                    "practice": False,
                    "names": "real",
                    "standings": "shown",
                    "publishes_reference": False,
                    "modes": ["test", "benchmark", "profile", "leaderboard"],
                },
            }
        },
    )
    gpu_types: list[str]
    warnings: list[str]
    board: BoardTold
