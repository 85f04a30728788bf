"""What every model is built on, and the two answers that belong to no subject: a failure, and a plain yes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[int, Field(ge=0, le=2**63 - 1)]

WITHOUT_NUL = r"^[^\x00]*$"  # no file and no program's argument has one in its name


class Shape(BaseModel):
    """Nothing but what is listed."""

    model_config = ConfigDict(extra="forbid")


class Wanted(BaseModel):
    """What a caller sends. A field that we don't know is another version's business."""


class Failure(Shape):
    """Every error: one sentence and what to do next."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"detail": "there is no board 'sort'."}})
    detail: str


class Fine(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"status": "ok"}})
    status: Literal["ok"]
