"""Courses: their rosters, invitations, and roles on their boards."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Id, Shape, Wanted

CourseRole = Literal["student", "owner", "assistant", "grader", "observer"]
BoardRole = Literal["owner", "assistant", "grader", "observer"]
_ADA: dict[str, Any] = {
    "person_id": 7,
    "person": "Ada Lovelace",
    "name": "Ada Lovelace",
    "email": "ada@example.edu",
    "student_id": "1815",
    "section": "A",
    "team": "engine",
    "role": "student",
    "has_signed_in": False,
    "invited_until": None,
    "added_at": "2026-10-01T08:00:00+00:00",
    "columns": {"Department": "Mathematics"},
}


class CourseTold(Shape):
    course: str
    students: int
    helpers: int
    boards: list[str]


class Courses(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"courses": [{"course": "gpu-2026", "students": 60, "helpers": 2, "boards": ["transpose"]}]}
        },
    )
    courses: list[CourseTold]


class RosterPerson(Shape):
    """Somebody on a roster. `person` is what boards call them; `columns` are the file's other ones, by their
    headings."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": _ADA})
    person_id: Id
    person: str
    name: str | None
    email: str | None
    student_id: str | None
    section: str | None
    team: str | None
    role: CourseRole
    has_signed_in: bool
    invited_until: str | None
    added_at: str
    columns: dict[str, str]


class RosterTold(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"course": "gpu-2026", "people": [_ADA]}})
    course: str
    people: list[RosterPerson]


class RosterChange(Shape):
    """`person_id` is null for a new person, `line` for one who leaves; `differences` are [before, after]."""

    line: int | None
    person: str
    person_id: Id | None
    section: str | None
    team: str | None
    role: CourseRole
    differences: dict[str, list[str | None]]


class RosterImported(Shape):
    """What an import did, or with `preview` would do."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "course": "gpu-2026",
                "preview": True,
                "platform": "canvas",
                "added": [
                    {
                        "line": 3,
                        "person": "Ada Lovelace",
                        "person_id": None,
                        "section": "A",
                        "team": "engine",
                        "role": "student",
                        "differences": {},
                    }
                ],
                "changed": [],
                "removed": [],
                "unchanged": 0,
                "notes": [],
            }
        },
    )
    course: str
    preview: bool
    platform: Literal["canvas", "moodle", "other"]
    added: list[RosterChange]
    changed: list[RosterChange]
    removed: list[RosterChange]
    unchanged: int
    notes: list[str]


class RosterPlace(Wanted):
    """What is left out or null stays; an empty section or team is none."""

    model_config = ConfigDict(json_schema_extra={"example": {"section": "A", "team": "engine"}})
    section: Annotated[str, Field(max_length=200)] | None = None
    team: Annotated[str, Field(max_length=200)] | None = None
    role: CourseRole | None = None


class RosterDropped(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"status": "ok", "course": "gpu-2026", "person": "Ada Lovelace"}},
    )
    status: Literal["ok"]
    course: str
    person: str


class InvitationsWanted(Wanted):
    """`people` left out: everyone on the roster. `again`: also those who have signed in already."""

    model_config = ConfigDict(json_schema_extra={"example": {"days": 14}})
    people: Annotated[list[Annotated[str, Field(max_length=254)]], Field(max_length=1000)] | None = None
    days: Annotated[int, Field(ge=1, le=366)] = 14
    again: bool = False


class Invitation(Shape):
    """The code and the link are told only here; each signs its person in once."""

    person_id: Id
    person: str
    name: str
    email: str | None
    section: str | None
    team: str | None
    code: str
    link: str


class NotInvited(Shape):
    person: str
    why: str


class InvitationsMade(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "course": "gpu-2026",
                "expires_at": "2026-10-15T08:00:00+00:00",
                "invitations": [
                    {
                        "person_id": 7,
                        "person": "Ada Lovelace",
                        "name": "Ada Lovelace",
                        "email": "ada@example.edu",
                        "section": "A",
                        "team": "engine",
                        "code": "kZ0…",
                        "link": "https://kernels.example.edu/join/kZ0…",
                    }
                ],
                "left_out": [{"person": "boris", "why": "has signed in already"}],
            }
        },
    )
    course: str
    expires_at: str
    invitations: list[Invitation]
    left_out: list[NotInvited]


class InvitationCode(Wanted):
    """An invitation, and what the new token is for. `name`: of the person whom an invitation to boards makes; one of a
    roster is somebody's already."""

    model_config = ConfigDict(json_schema_extra={"example": {"code": "kZ0…", "device": "laptop"}})
    code: Annotated[str, Field(min_length=1, max_length=512)]
    device: Annotated[str, Field(max_length=200)] = ""
    name: Annotated[str, Field(min_length=1, max_length=64)] | None = None


class InvitationTaken(Shape):
    """A token of one's own, told only here, and the boards that one sees by invitation."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"person": "Ada Lovelace", "token": "kZ0…", "leaderboards": ["transpose"]}},
    )
    person: str
    token: str
    leaderboards: list[str]


class BoardRoleTold(Shape):
    """`by`: whether it is a role on this board, or on all of its course."""

    person_id: Id
    person: str
    role: BoardRole
    by: Literal["board", "course"]


class BoardRoles(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "leaderboard": "transpose",
                "course": "gpu-2026",
                "roles": [{"person_id": 9, "person": "tess", "role": "grader", "by": "board"}],
            }
        },
    )
    leaderboard: str
    course: str | None
    roles: list[BoardRoleTold]


class NewBoardRole(Wanted):
    """Null takes the role away."""

    model_config = ConfigDict(json_schema_extra={"example": {"role": "grader"}})
    role: BoardRole | None


class BoardRoleSet(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"status": "ok", "leaderboard": "transpose", "person": "tess", "role": "grader"}},
    )
    status: Literal["ok"]
    leaderboard: str
    person: str
    role: BoardRole | None
