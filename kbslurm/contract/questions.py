"""Questions at boards and submissions, appeals, answers and announcements."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import WITHOUT_NUL, Id, Shape, Wanted
from kbslurm.domain.contest import NAME_CAP
from kbslurm.domain.questions import TEXT_CAP

# With room for the blanks around it that are taken off.
Text = Annotated[str, Field(max_length=2 * TEXT_CAP, pattern=WITHOUT_NUL)]

_OWN: dict[str, Any] = {
    "id": 31,
    "leaderboard": "transpose",
    "submission": 412,
    "appeal": True,
    "text": "It passed on the same GPU an hour before. Please judge it again.",
    "asked_at": "2026-12-01T10:00:00+00:00",
    "state": "answered",
    "answer": "The node was faulty; your new verdict counts.",
    "answered_at": "2026-12-01T11:30:00+00:00",
    "to_all": False,
    "outcome": [
        {"gpu": "H100", "before": "timeout", "before_s": None, "after": "passed", "after_s": 0.000041, "counts": True}
    ],
}


class QuestionWanted(Wanted):
    """At a board that one may see, or at a submission of one's own; an `appeal` asks for that to be judged again."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"leaderboard": "transpose", "text": "May we use Triton here?"}}
    )
    text: Text
    leaderboard: Annotated[str, Field(max_length=NAME_CAP)] | None = None
    submission: Id | None = None
    appeal: bool | None = None


class AnswerWanted(Wanted):
    """`to_all`: as an announcement to everyone on the board, without what was asked and by whom. `again`: in place of
    an earlier answer."""

    model_config = ConfigDict(json_schema_extra={"example": {"text": "Yes, any version.", "to_all": True}})
    text: Text
    to_all: bool | None = None
    again: bool | None = None


class QuestionRejudgeWanted(Wanted):
    """`preview` orders a rejudge of the appeal's submission, or shows how it stands; then `apply` or `cancel`."""

    model_config = ConfigDict(json_schema_extra={"example": {"act": "preview"}})
    act: Literal["preview", "apply", "cancel"]


class Outcome(Shape):
    """What a rejudge that counts changed; `counts` false: the run couldn't be judged again."""

    gpu: str
    before: str
    before_s: float | None
    after: str
    after_s: float | None
    counts: bool


class QuestionTold(Shape):
    """A question as its author sees it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": _OWN})
    id: Id
    leaderboard: str
    submission: Id | None
    appeal: bool
    text: str
    asked_at: str
    state: Literal["open", "answered", "closed"]
    answer: str | None
    answered_at: str | None
    to_all: bool
    outcome: list[Outcome] | None


class OwnQuestions(Shape):
    questions: list[QuestionTold]


class QuestionRejudge(Shape):
    rejudging: Id
    state: Literal["open", "applied", "cancelled"]


class HostsQuestion(QuestionTold):
    """A question as hosts see it."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                **_OWN,
                "person_id": 7,
                "person": "ada",
                "answered_by": "hana",
                "rejudge": {"rejudging": 3, "state": "applied"},
            }
        },
    )
    person_id: Id
    person: str
    answered_by: str | None
    rejudge: QuestionRejudge | None


class HostsQuestions(Shape):
    """Open ones first, the oldest on top; `open`: how many there are."""

    questions: list[HostsQuestion]
    open: int


class Announcement(Shape):
    id: Id
    text: str
    at: str


class Announcements(Shape):
    """What hosts told everyone on a board, newest first."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "leaderboard": "transpose",
                "announcements": [{"id": 30, "text": "Any version of Triton.", "at": "2026-12-01T11:30:00+00:00"}],
            }
        },
    )
    leaderboard: str
    announcements: list[Announcement]
