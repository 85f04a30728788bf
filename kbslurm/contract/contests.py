"""Boards as contests: the objects of the CLICS Contest API, 2026-01, as far as they fit a board."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Shape

Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,34}[A-Za-z0-9_-])?$")]
Time = Annotated[str, Field(description="ISO 8601, with milliseconds and the offset.")]
Reltime = Annotated[
    str, Field(description="h:mm:ss.uuu", pattern=r"^-?([1-9][0-9]*)?[0-9]:[0-5][0-9]:[0-5][0-9]\.[0-9]{3}$")
]


class ContestTold(Shape):
    """A board. It starts when it is created; without a deadline its duration is a hundred years."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "id": "transpose",
                "name": "transpose",
                "formal_name": "Transpose a matrix.",
                "start_time": "2026-05-01T12:00:00.000+00:00",
                "duration": "168:00:00.000",
                "scoreboard_freeze_duration": "24:00:00.000",
                "scoreboard_type": "pass-fail",
                "penalty_time": "0:00:00.000",
            }
        },
    )
    id: Identifier
    name: str
    formal_name: str
    start_time: Time
    duration: Reltime
    scoreboard_freeze_duration: Reltime | None
    scoreboard_type: Literal["pass-fail"]
    penalty_time: Reltime


class ContestState(Shape):
    """How far it is."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "started": "2026-05-01T12:00:00.000+00:00",
                "frozen": "2026-05-07T12:00:00.000+00:00",
                "ended": None,
                "thawed": None,
                "finalized": None,
                "end_of_updates": None,
            }
        },
    )
    started: Time | None
    frozen: Time | None
    ended: Time | None
    thawed: Time | None
    finalized: Time | None
    end_of_updates: Time | None


class ContestProblem(Shape):
    """The board's problem on one GPU type, since each has its own standings. `test_data_count`: the public cases."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"id": "H100", "label": "H100", "name": "transpose on H100", "ordinal": 1, "test_data_count": 7}
        },
    )
    id: Identifier
    label: str
    name: str
    ordinal: int
    test_data_count: int


class ContestLanguage(Shape):
    """What submissions are written in."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"id": "python3", "name": "Python 3", "entry_point_required": False, "extensions": ["py"]}
        },
    )
    id: Identifier
    name: str
    entry_point_required: bool
    extensions: list[str]


class JudgementType(Shape):
    """A verdict. Others are told the simplified one of a submission; hosts and its author the original."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "id": "WA",
                "name": "wrong",
                "penalty": False,
                "solved": False,
                "simplified_judgement_type_id": "RE",
            }
        },
    )
    id: Identifier
    name: str
    penalty: bool
    solved: bool
    simplified_judgement_type_id: Identifier


class ContestTeam(Shape):
    """Whoever stands in the standings: a person or, where teams count together, a team. The ID is this board's own."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"id": "5be1f0c2a94d7e36", "name": "ada", "label": "ada"}}
    )
    id: Identifier
    name: str
    label: str


class ContestSubmission(Shape):
    """A submission for the ranking on one GPU type: its number and that. `files` is empty: nobody's code is told."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "id": "412-H100",
                "language_id": "python3",
                "problem_id": "H100",
                "team_id": "5be1f0c2a94d7e36",
                "time": "2026-05-01T13:00:00.000+00:00",
                "contest_time": "1:00:00.000",
                "files": [],
            }
        },
    )
    id: Identifier
    language_id: Identifier
    problem_id: Identifier
    team_id: Identifier
    time: Time
    contest_time: Reltime
    files: Annotated[list[dict[str, str]], Field(max_length=0)]


class Judgement(Shape):
    """A submission's verdict, which has the same ID. `kbslurm_score_s` isn't of the specification, whose scores are
    better the higher they are: the time that ranks, in seconds, and its interval."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "id": "412-H100",
                "submission_id": "412-H100",
                "judgement_type_id": "AC",
                "start_time": "2026-05-01T13:00:02.000+00:00",
                "start_contest_time": "1:00:02.000",
                "end_time": "2026-05-01T13:00:12.000+00:00",
                "end_contest_time": "1:00:12.000",
                "kbslurm_score_s": 0.000041836,
                "kbslurm_interval_s": [0.0000417, 0.000042],
            }
        },
    )
    id: Identifier
    submission_id: Identifier
    judgement_type_id: Identifier
    start_time: Time
    start_contest_time: Reltime
    end_time: Time
    end_contest_time: Reltime
    kbslurm_score_s: float | None
    kbslurm_interval_s: list[float] | None


class ContestEndpoint(Shape):
    type: str
    properties: list[str]


class ContestAccess(Shape):
    """Which objects there are, with which properties. Nothing can be changed through them."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"capabilities": [], "endpoints": [{"type": "teams", "properties": ["id", "name", "label"]}]}
        },
    )
    capabilities: list[str]
    endpoints: list[ContestEndpoint]


class ContestEvent(Shape):
    """One line of a contest's feed: what the object of this type and ID is now; without an ID all of that type."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "type": "teams",
                "id": "5be1f0c2a94d7e36",
                "data": {"id": "5be1f0c2a94d7e36", "name": "ada", "label": "ada"},
                "token": "c971",
            }
        },
    )
    type: Literal["contest", "judgement-types", "languages", "problems", "teams", "submissions", "judgements", "state"]
    id: Identifier | None
    data: dict[str, Any] | list[dict[str, Any]]
    token: str
