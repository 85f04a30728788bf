"""People, their accounts, tokens and rights."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Shape, Wanted


class Pending(Shape):
    """A pending token; it is linked on Discord, on our page, or by a host."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"state": "kZ0…"}})
    state: str


class Banned(Shape):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"status": "ok", "user_id": "7", "banned": True}}
    )
    status: Literal["ok"]
    user_id: str
    banned: bool


class NewPerson(Wanted):
    """A person by their account; the same account always gives the same person."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"name": "ada", "provider": "discord", "account": "81384788765712384"}},
    )
    name: Annotated[str, Field(min_length=1, max_length=64)]
    provider: Literal["discord", "github"]
    account: Annotated[str, Field(min_length=1, max_length=64)]


class DiscordUser(Wanted):
    """A person by their Discord ID; the same ID always gives the same person."""

    model_config = ConfigDict(json_schema_extra={"example": {"account": "81384788765712384", "name": "ada"}})
    account: Annotated[str, Field(pattern=r"^[0-9]{1,20}$")]
    name: Annotated[str, Field(min_length=1, max_length=64)]


class PendingToken(Wanted):
    """The state of `/auth/init`."""

    model_config = ConfigDict(json_schema_extra={"example": {"token": "kZ0…"}})
    token: Annotated[str, Field(min_length=1, max_length=512)]


class PersonTold(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"id": "7", "name": "ada", "role": "participant", "team": "blue", "banned": False}
        },
    )
    id: str
    name: str
    role: Literal["owner", "staff", "participant"]
    team: str | None
    banned: bool


class Link(Wanted):
    """A pending token (the state of `/auth/init`) and whom to link it to: person:ID, discord:ID or github:ID."""

    model_config = ConfigDict(json_schema_extra={"example": {"token": "kZ0…", "person": "discord:8138"}})
    token: Annotated[str, Field(min_length=1, max_length=512)]
    person: Annotated[str, Field(min_length=3, max_length=100)]


class People(Shape):
    people: list[PersonTold]


class May(Shape):
    """`gpu_types`: what places offer; only for hosts and creators."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"host": False, "creator": True, "gpu_types": ["A100", "H100"]}}
    )
    host: bool
    creator: bool
    gpu_types: list[str]
