"""Hosts' calls about questions and appeals."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from kbslurm.api import identity, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, at_work, check_helps, helping, helping_anywhere
from kbslurm.api.hosting.hosting import Hosting
from kbslurm.api.identity import Given, Sender
from kbslurm.api.parameters import Limit, Offset, QuestionNumber
from kbslurm.contract.questions import AnswerWanted, HostsQuestion, HostsQuestions, QuestionRejudgeWanted
from kbslurm.contract.rejudging import RejudgeCost, RejudgingTold
from kbslurm.domain import access, contest
from kbslurm.domain.access import BoardAct
from kbslurm.errors import NotFound


def add_questions(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    def about(sender: Given, number: int, act: BoardAct) -> Hosting:
        """Who calls, at work, if they may do this with the questions of its board. To others it isn't there or not
        alike."""
        by, person = identity.acting_helper(context, sender)
        try:
            found = context.store.questions.get(number)
        except NotFound:
            identity.host(context, sender)
            raise
        if person is not None and not identity.is_host(context, sender, person):
            check_helps(context, person, found.board, act)
        return at_work(context, by, person)

    @router.get("/questions", responses=answers(HostsQuestions, *HOSTS_FAILURES, 403))
    def questions(
        sender: Sender,
        leaderboard: Annotated[
            str | None, Query(max_length=contest.NAME_CAP, description="Only at this board.")
        ] = None,
        state: Annotated[Literal["open", "answered", "closed"] | None, Query(description="Default: all.")] = None,
        limit: Limit = 50,
        offset: Offset = 0,
    ) -> Ascii:
        """What people ask at the boards that one may grade, open ones first."""
        if leaderboard is not None:
            host = helping(context, sender, leaderboard, access.ON_QUESTIONS["read"])
            return Ascii(host.questions(leaderboard, state=state, limit=limit, offset=offset))
        host, only = helping_anywhere(context, sender, access.ON_QUESTIONS["read"])
        return Ascii(host.questions(state=state, limit=limit, offset=offset, only=only))

    @router.get("/questions/{question_id}", responses=answers(HostsQuestion, 401, 403, 404))
    def question(question_id: QuestionNumber, sender: Sender) -> Ascii:
        """A question, with who asked it and what came of it."""
        return Ascii(about(sender, question_id, access.ON_QUESTIONS["read"]).question(question_id))

    @router.post("/questions/{question_id}/answer", responses=answers(HostsQuestion, *HOSTS_FAILURES, 403))
    def answer(question_id: QuestionNumber, wanted: AnswerWanted, sender: Sender) -> Ascii:
        """Answer a question, to its author or as an announcement to everyone on its board."""
        to_all = bool(wanted.to_all)
        host = about(sender, question_id, access.ON_QUESTIONS["announce" if to_all else "answer"])
        return Ascii(host.answer(question_id, wanted.text, to_all=to_all, again=bool(wanted.again)))

    @router.post("/questions/{question_id}/close", responses=answers(HostsQuestion, *HOSTS_FAILURES, 403))
    def close(question_id: QuestionNumber, sender: Sender) -> Ascii:
        """Close a question that needs no answer."""
        return Ascii(about(sender, question_id, access.ON_QUESTIONS["answer"]).close_question(question_id))

    @router.get("/questions/{question_id}/rejudge-estimate", responses=answers(RejudgeCost, *HOSTS_FAILURES, 403))
    def estimate(question_id: QuestionNumber, sender: Sender) -> Ascii:
        """What judging an appeal's submission again would cost and how long it would take. Orders nothing."""
        host = about(sender, question_id, access.ON_QUESTIONS["rejudge"])
        return Ascii(host.question_rejudge_estimate(question_id))

    @router.post("/questions/{question_id}/rejudge", responses=answers(RejudgingTold, *HOSTS_FAILURES, 403))
    def rejudge(question_id: QuestionNumber, wanted: QuestionRejudgeWanted, sender: Sender) -> Ascii:
        """Judge an appeal's submission again: nothing counts until it is applied, and then the question says what
        changed."""
        host = about(sender, question_id, access.ON_QUESTIONS["rejudge"])
        match wanted.act:
            case "preview":
                return Ascii(host.question_rejudge_preview(question_id))
            case "apply":
                return Ascii(host.question_rejudge_apply(question_id))
            case "cancel":
                return Ascii(host.question_rejudge_cancel(question_id))
