"""Hosts' acts about questions and appeals."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from kbslurm.api.hosting.host_acts import iso
from kbslurm.api.hosting.measuring import MeasuringActs
from kbslurm.errors import Invalid, NotFound

if TYPE_CHECKING:
    from kbslurm.domain.questions import State
    from kbslurm.store.questions import Announcement, Question


class QuestionActs(MeasuringActs):
    """Questions and appeals: see, answer, close, judge again."""

    def questions(
        self,
        board: str | None = None,
        *,
        state: State | None = None,
        limit: int = 50,
        offset: int = 0,
        only: Collection[int] | None = None,
    ) -> Mapping[str, Any]:
        """The questions at a board, or at all; open ones first. `only`: at no other boards than these."""
        boards = only if board is None else [self.held(board).id]
        found = self.store.questions.find(boards, state=state, limit=limit, offset=offset)
        return {"questions": [hosts_question(one) for one in found], "open": self.store.questions.open(boards)}

    def question(self, number: int) -> Mapping[str, Any]:
        """One question, with who asked it and what came of it."""
        return hosts_question(self.store.questions.get(number))

    def answer(self, number: int, text: str, *, to_all: bool = False, again: bool = False) -> Mapping[str, Any]:
        """Answer a question, to its author or as an announcement to everyone on its board; `again` replaces an
        earlier answer."""
        found = self.store.questions.answer(number, text, to_all=to_all, again=again, by=self.by, now=self.now)
        return hosts_question(found)

    def close_question(self, number: int) -> Mapping[str, Any]:
        """Close a question that needs no answer."""
        return hosts_question(self.store.questions.close(number, by=self.by, now=self.now))

    def question_rejudge_estimate(self, number: int) -> Mapping[str, Any]:
        """What judging an appeal's submission again would cost and how long it would take."""
        found = self._appealed(number)
        return self.rejudge_estimate(found.board, [f"submission={found.submission_id}"])

    def question_rejudge_preview(self, number: int) -> Mapping[str, Any]:
        """Order a rejudge of an appeal's submission, or show how the one that was ordered stands."""
        found = self._appealed(number)
        known = self.store.rejudgings.open(found.board)
        if known is None or known.id != found.rejudging_id:
            wanted = self._wanted(self.held(found.board), [f"submission={found.submission_id}"])
            known = self.store.rejudgings.order(found.board, wanted, None, by=self.by, question=found.id, now=self.now)
        return known.told("preview")

    def question_rejudge_stands(self, number: int) -> Mapping[str, Any] | None:
        """How the open rejudge that was ordered for this appeal stands; None without one."""
        found = self.store.questions.get(number)
        known = self.store.rejudgings.open(found.board) if found.rejudge == "open" else None
        return None if known is None or known.id != found.rejudging_id else known.told("preview")

    def question_rejudge_apply(self, number: int) -> Mapping[str, Any]:
        """Make the new verdicts of an appeal's submission count; the question notes what they changed."""
        board, only = self._ordered(number)
        return self.store.rejudgings.apply(board, by=self.by, only=only, now=self.now).told("applied")

    def question_rejudge_cancel(self, number: int) -> Mapping[str, Any]:
        """Discard the rejudge of an appeal's submission."""
        board, only = self._ordered(number)
        return self.store.rejudgings.cancel(board, by=self.by, only=only, now=self.now).told("cancelled")

    def _appealed(self, number: int) -> Question:
        found = self.store.questions.get(number)
        if not found.appeal:
            raise Invalid(f"question {number} isn't an appeal", hint="Judge any submission again with kbslurm rejudge.")
        return found

    def _ordered(self, number: int) -> tuple[str, int]:
        """The board and number of the open rejudge that was ordered for this appeal."""
        found = self._appealed(number)
        if found.rejudging_id is None or found.rejudge != "open":
            raise NotFound("open rejudge of question", str(number), hint="Order one first, with --preview.")
        return found.board, found.rejudging_id


def own_question(one: Question) -> dict[str, Any]:
    """A question as its author sees it: what a rejudge changed only once it counts, and never which host answered."""
    return {
        "id": one.id,
        "leaderboard": one.board,
        "submission": one.submission_id,
        "appeal": one.appeal,
        "text": one.text,
        "asked_at": one.asked_at.isoformat(),
        "state": one.state,
        "answer": one.answer if one.answered_at is not None else None,
        "answered_at": iso(one.answered_at),
        "to_all": one.to_all,
        "outcome": one.outcome,
    }


def hosts_question(one: Question) -> dict[str, Any]:
    """A question as hosts see it."""
    return {
        **own_question(one),
        "person_id": one.person_id,
        "person": one.person,
        "answered_by": one.answered_by,
        "rejudge": None if one.rejudging_id is None else {"rejudging": one.rejudging_id, "state": one.rejudge},
    }


def announced(board: str, found: Collection[Announcement]) -> dict[str, Any]:
    """A board's announcements, as everyone who sees the board sees them."""
    rows = [{"id": one.id, "text": one.text, "at": one.at.isoformat()} for one in found]
    return {"leaderboard": board, "announcements": rows}
