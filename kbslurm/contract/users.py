"""People as hosts see them, their roles and tokens."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import WITHOUT_NUL, Id, Shape, Wanted


class UserTold(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "id": 7,
                "name": "ada",
                "role": "participant",
                "banned_at": None,
                "ban_reason": "",
                "discord_id": "81384788765712384",
                "github_id": None,
                "created_at": "2026-11-02T09:00:00+00:00",
                "team": "blue",
                "cluster_account": None,
            }
        },
    )
    id: Id
    name: str
    role: Literal["owner", "staff", "participant"]
    banned_at: str | None
    ban_reason: str
    discord_id: str | None
    github_id: str | None
    created_at: str
    team: str | None
    cluster_account: str | None


class Users(Shape):
    users: list[UserTold]


_DELETED: dict[str, Any] = {
    "person_id": 7,
    "name": "ada",
    "pseudonym": "deleted-1f0c9a3e",
    "erased": {"personal_data": 1, "accounts": 1, "tokens": 2, "courses": 1, "roles": 0, "questions": 0},
    "courses": ["gpu-2026"],
    "open_runs": 0,
    "submissions": 12,
    "audit_lines": 3,
    "archives": [
        {
            "id": 2,
            "leaderboard": "transpose",
            "private": True,
            "place": "login1:/home/hana/transpose-2026",
            "written_by": "hana",
            "at": "2026-12-24T09:00:00+00:00",
        }
    ],
}


class ArchiveWritten(Shape):
    """An archive that was written before, with everything if it is `private`: a host has to write it again."""

    id: Id
    leaderboard: str
    private: bool
    place: str
    written_by: str
    at: str


class UserDeleted(Shape):
    """What deleting a person erases, and how many of their submissions and lines of the audit log stay under the
    pseudonym, which is null in a preview."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": _DELETED})
    person_id: Id
    name: str
    pseudonym: str | None
    erased: dict[str, int]
    courses: list[str]
    open_runs: int
    submissions: int
    audit_lines: int
    archives: list[ArchiveWritten]


class DeletionDue(Shape):
    person_id: Id
    name: str
    last_at: str


class DeletionsDue(Shape):
    """Participants of whom nothing was heard for longer than `[policy] keep_people_days`."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "keep_people_days": 730,
                "due": [{"person_id": 7, "name": "ada", "last_at": "2024-02-01T08:00:00+00:00"}],
            }
        },
    )
    keep_people_days: int | None
    due: list[DeletionDue]


class DeletedDue(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"deleted": [_DELETED]}})
    deleted: list[UserDeleted]


class NewUser(Wanted):
    model_config = ConfigDict(json_schema_extra={"example": {"name": "ada", "role": "participant"}})
    name: Annotated[str, Field(min_length=1, max_length=200)]
    role: Literal["owner", "staff", "participant"] = "participant"


class NewRole(Wanted):
    model_config = ConfigDict(json_schema_extra={"example": {"role": "staff"}})
    role: Literal["owner", "staff", "participant"]


class NewTeam(Wanted):
    model_config = ConfigDict(json_schema_extra={"example": {"team": "blue"}})
    team: Annotated[str, Field(min_length=1, max_length=200)] | None


class NewClusterAccount(Wanted):
    model_config = ConfigDict(json_schema_extra={"example": {"cluster_account": "def-lovelace"}})
    cluster_account: Annotated[str, Field(min_length=1, max_length=200)] | None


class AccountWanted(Wanted):
    """discord:ID, github:ID, or oidc:SUBJECT of the configured provider."""

    model_config = ConfigDict(json_schema_extra={"example": {"account": "discord:81384788765712384"}})
    account: Annotated[str, Field(min_length=3, max_length=300, pattern=WITHOUT_NUL)]


class TokenWanted(Wanted):
    """`device` is a label; without `days` it doesn't expire. `service`: for a program, whose submissions never rank,
    wait behind everyone's and use `gpu_s_per_day` (none: no limit) instead of the boards' limits per person."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"device": "trainer", "days": 30, "service": True, "gpu_s_per_day": 7200}}
    )
    device: Annotated[str, Field(max_length=200, pattern=WITHOUT_NUL)] = ""
    days: Annotated[int, Field(ge=1, le=3650)] | None = None
    service: bool = False
    gpu_s_per_day: Annotated[float, Field(ge=0, le=1_000_000_000, allow_inf_nan=False)] | None = None


class TokenIssued(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"person": "ada", "token": "kZ0…", "expires_at": "2026-12-24T09:00:00+00:00"}},
    )
    person: str
    token: str
    expires_at: str | None


class TokenTold(Shape):
    id: Id
    person_id: Id | None
    device: str
    kind: Literal["cli", "web", "api", "pending", "invite", "service"]
    gpu_s_per_day: float | None
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    used_at: str | None


class TokensTold(Shape):
    tokens: list[TokenTold]


class TokensRevoked(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"person": "ada", "revoked": [3]}})
    person: str
    revoked: list[Id]
