"""The hosts' calls about questions and appeals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbslurm.client.connection import Connection
from kbslurm.domain.questions import State


class HostQuestionCalls(Connection):
    """See, answer and close questions; judge an appeal's submission again."""

    def questions(
        self, board: str | None = None, *, state: State | None = None, limit: int = 50, offset: int = 0
    ) -> Mapping[str, Any]:
        """The questions at a board, or at all that one may grade; open ones first."""
        wanted = {"leaderboard": board, "state": state, "limit": limit, "offset": offset}
        found: Mapping[str, Any] = self._get(
            "/admin/questions", **{name: value for name, value in wanted.items() if value is not None}
        )
        return found

    def question(self, number: int) -> Mapping[str, Any]:
        """One question, with who asked it and what came of it."""
        found: Mapping[str, Any] = self._get(f"/admin/questions/{number}")
        return found

    def answer(self, number: int, text: str, *, to_all: bool = False, again: bool = False) -> Mapping[str, Any]:
        """Answer a question, to its author or as an announcement to everyone on its board; `again` replaces an
        earlier answer."""
        return self._act(f"/admin/questions/{number}/answer", {"text": text, "to_all": to_all, "again": again})

    def close_question(self, number: int) -> Mapping[str, Any]:
        """Close a question that needs no answer."""
        return self._act(f"/admin/questions/{number}/close")

    def question_rejudge_estimate(self, number: int) -> Mapping[str, Any]:
        """What judging an appeal's submission again would cost and how long it would take."""
        found: Mapping[str, Any] = self._get(f"/admin/questions/{number}/rejudge-estimate")
        return found

    def question_rejudge_preview(self, number: int) -> Mapping[str, Any]:
        """Order a rejudge of an appeal's submission, or show how the one that was ordered stands."""
        return self._act(f"/admin/questions/{number}/rejudge", {"act": "preview"})

    def question_rejudge_apply(self, number: int) -> Mapping[str, Any]:
        """Make the new verdicts of an appeal's submission count; the question notes what they changed."""
        return self._act(f"/admin/questions/{number}/rejudge", {"act": "apply"})

    def question_rejudge_cancel(self, number: int) -> Mapping[str, Any]:
        """Discard the rejudge of an appeal's submission."""
        return self._act(f"/admin/questions/{number}/rejudge", {"act": "cancel"})
