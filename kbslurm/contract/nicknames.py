"""Nicknames on a board."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Shape, Wanted


class Nickname(Wanted):
    """As whom others are to see one; null: under one's own name."""

    model_config = ConfigDict(json_schema_extra={"example": {"nickname": "Warp Speed"}})
    nickname: Annotated[str, Field(max_length=200)] | None


class NicknameTold(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"status": "ok", "leaderboard": "transpose", "nickname": "Warp Speed"}},
    )
    status: Literal["ok"]
    leaderboard: str
    nickname: str | None
