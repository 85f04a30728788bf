"""The base of every model, and the two general answers: a failure, and a plain ok."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[int, Field(ge=0, le=2**63 - 1)]

WITHOUT_NUL = r"^[^\x00]*$"  # neither file names nor program arguments can contain one


class Shape(BaseModel):
    """Only the listed fields."""

    model_config = ConfigDict(extra="forbid")


class Wanted(BaseModel):
    """A request body. Unknown fields, from other versions, are ignored."""


class Failure(Shape):
    """Every error: one sentence and what to do next."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"detail": "there is no board 'sort'."}})
    detail: str


class Fine(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"status": "ok"}})
    status: Literal["ok"]
