"""The pages for questions: one's own, with a form to ask, and for staff what people ask, with forms to answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work
from kbslurm.api.hosting.hosting import Hosting
from kbslurm.api.hosting.questions import own_question
from kbslurm.api.lookup import may_see_board, seen_board
from kbslurm.api.pages.visitors import Offset, Visitors, form_of, to_login
from kbslurm.api.parameters import QuestionNumber
from kbslurm.domain import contest
from kbslurm.domain.questions import TEXT_CAP, outcome_in_words
from kbslurm.errors import Invalid, NotFound

Form = Mapping[str, str]
SHOWN = 50


def question_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @router.get("/questions")
    def questions(
        request: Request,
        board: Annotated[str, Query(max_length=contest.NAME_CAP)] = "",
        submission: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None,
        start: Offset = 0,
    ) -> Response:
        """One's own questions with their answers, and a form for another: at that board, or at that submission."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        if submission is not None:
            visitors.own(person, submission)
        joined = context.store.invites.boards_of(person.id)
        found = context.store.questions.of_person(person.id, limit=SHOWN, offset=start)
        return visitors.page(
            request,
            "questions.html",
            person,
            rows=[own_question(one) for one in found],
            start=start,
            step=SHOWN,
            boards=[one.name for one in context.store.boards.all(counted=False) if may_see_board(one, person, joined)],
            board=board.strip().lower(),
            submission=submission,
            text_cap=TEXT_CAP,
            in_words=outcome_in_words,
        )

    @router.post("/questions")
    async def ask(request: Request) -> Response:
        """Ask as the person who is signed in."""
        form = await form_of(request)

        def asked() -> None:
            person = visitors.sender(request, form)
            number = form.get("submission", "").strip()
            if number and not (number.isascii() and number.isdecimal() and len(number) < 19):
                raise Invalid(f"{number[:40]!r} isn't a submission number")
            board = None if number else seen_board(context, form.get("board", ""), person).name
            context.store.questions.ask(
                person.id,
                form.get("text", ""),
                board=board,
                submission=int(number) if number else None,
                appeal=form.get("appeal") == "yes",
                now=context.clock.now(),
            )

        await run_in_threadpool(asked)
        return RedirectResponse("/questions", status_code=303)

    @router.get("/staff/questions")
    def of_everybody(request: Request, start: Offset = 0) -> Response:
        """What people ask, open questions first."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        visitors.staff(person)
        work = at_work(context, person.name, person)
        found = work.questions(limit=SHOWN, offset=start)
        ordered = [one["id"] for one in found["questions"] if one["rejudge"] and one["rejudge"]["state"] == "open"]
        return visitors.page(
            request,
            "staff_questions.html",
            person,
            rows=found["questions"],
            open=found["open"],
            stands={number: work.question_rejudge_stands(number) for number in ordered},
            start=start,
            step=SHOWN,
            text_cap=TEXT_CAP,
            in_words=outcome_in_words,
        )

    @router.post("/staff/questions/{question_id}/{act}")
    async def act(question_id: QuestionNumber, act: Annotated[str, Path(max_length=32)], request: Request) -> Response:
        """Do it as the person who is signed in; the audit log records it."""
        form = await form_of(request)

        def done() -> Response:
            person = visitors.staff(visitors.sender(request, form))
            if act not in ACTS:
                raise NotFound("act", act, known=list(ACTS))
            ACTS[act](at_work(context, person.name, person), question_id, form)
            return RedirectResponse("/staff/questions", status_code=303)

        return await run_in_threadpool(done)


def _answer(work: Hosting, number: int, form: Form) -> None:
    work.answer(number, form.get("text", ""), to_all=form.get("to_all") == "yes", again=form.get("again") == "yes")


def _close(work: Hosting, number: int, form: Form) -> None:
    work.close_question(number)


def _preview(work: Hosting, number: int, form: Form) -> None:
    work.question_rejudge_preview(number)


def _apply(work: Hosting, number: int, form: Form) -> None:
    work.question_rejudge_apply(number)


def _cancel(work: Hosting, number: int, form: Form) -> None:
    work.question_rejudge_cancel(number)


ACTS: Mapping[str, Callable[[Hosting, int, Form], None]] = {
    "answer": _answer,
    "close": _close,
    "rejudge": _preview,
    "apply": _apply,
    "cancel": _cancel,
}
