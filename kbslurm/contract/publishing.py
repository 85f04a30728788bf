"""Publishing code."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from kbslurm.contract.base import WITHOUT_NUL, Id, Shape, Wanted
from kbslurm.domain.access import CodeRule

RULE: dict[str, Any] = {
    "leaderboard": "transpose",
    "rule": "never",
    "licence": "",
    "in_words": "Code on this board isn't published.",
    "is_over": False,
    "consents": False,
}


class CodeRuleWanted(Wanted):
    """`never`, `deadline` (once the board is over everybody's), or `consent` (then of those who agree). `licence`: a
    name like MIT, or a text; left out, it stays."""

    model_config = ConfigDict(json_schema_extra={"example": {"rule": "consent", "licence": "MIT"}})
    rule: CodeRule
    licence: Annotated[str, Field(max_length=4000, pattern=WITHOUT_NUL)] | None = None


class ConsentWanted(Wanted):
    """Whether one agrees that one's code on the board is published."""

    model_config = ConfigDict(json_schema_extra={"example": {"consents": True}})
    consents: bool


class CodeRuleTold(Shape):
    """A board's rule. `is_over`: nobody can submit any more; `consents`: whether the caller agreed."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": RULE})
    leaderboard: str
    rule: CodeRule
    licence: str
    in_words: str
    is_over: bool
    consents: bool


class PublishedPlace(Shape):
    rank: int
    person: str
    submission: Id
    score_s: float


class PublishedCode(Shape):
    """The rule, and the places of the standings whose code is published."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                **RULE,
                "gpu": "H100",
                "published": [{"rank": 1, "person": "ada", "submission": 12, "score_s": 0.0012}],
            }
        },
    )
    leaderboard: str
    rule: CodeRule
    licence: str
    in_words: str
    is_over: bool
    consents: bool
    gpu: str
    published: list[PublishedPlace]


class CodeFile(Shape):
    name: str
    text: str


class CodeTold(Shape):
    """The code of a published submission."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "leaderboard": "transpose",
                "gpu": "H100",
                "licence": "MIT",
                "person": "ada",
                "submission": 12,
                "files": [{"name": "submission.py", "text": "x = 1\n"}],
            }
        },
    )
    leaderboard: str
    gpu: str
    licence: str
    person: str
    submission: Id
    files: list[CodeFile]
