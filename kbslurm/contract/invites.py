"""Invitations to closed boards."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Shape, Wanted


class Code(Wanted):
    """An invitation."""

    model_config = ConfigDict(json_schema_extra={"example": {"code": "H7K2-9QXW-4MZT"}})
    code: Annotated[str, Field(min_length=1, max_length=64)]


class Joined(Shape):
    """`already`: the caller had joined by this invitation before."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"status": "ok", "leaderboards": ["transpose"], "already": False}},
    )
    status: Literal["ok"]
    leaderboards: list[str]
    already: bool


class InvitesWanted(Wanted):
    """`newcomers`: whoever has no account gets one by an invitation, whatever other ways of signing on there are."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"leaderboards": ["transpose"], "count": 2, "newcomers": True}}
    )
    leaderboards: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=100)]
    count: Annotated[int, Field(ge=1, le=10_000)]
    newcomers: bool = False


class InvitesMade(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"status": "ok", "leaderboards": ["transpose"], "codes": ["H7K2-9QXW-4MZT", "2BCD-EF34-GHJK"]}
        },
    )
    status: Literal["ok"]
    leaderboards: list[str]
    codes: list[str]


class InviteTold(Shape):
    code: str
    user_id: str | None
    user_name: str | None
    claimed_at: str | None
    created_at: str


class Invites(Shape):
    invites: list[InviteTold]


class InviteRevoked(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"status": "ok", "code": "H7K2-9QXW-4MZT", "was_claimed": False}},
    )
    status: Literal["ok"]
    code: str
    was_claimed: bool
