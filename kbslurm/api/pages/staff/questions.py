"""What people ask, for staff and for whoever grades a board: with forms to answer, and to judge again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work, check_helps
from kbslurm.api.hosting.hosting import Hosting
from kbslurm.api.pages.staff.forms import refused
from kbslurm.api.pages.visitors import Offset, Visitors, form_of, to_login
from kbslurm.api.parameters import QuestionNumber
from kbslurm.domain import access
from kbslurm.domain.access import BoardAct
from kbslurm.domain.questions import STATES, TEXT_CAP, outcome_in_words
from kbslurm.errors import Invalid, KbslurmError, NoHost, NotFound
from kbslurm.store.views import Person

Form = Mapping[str, str]
Words = Annotated[str, Query(max_length=32)]
SHOWN = 50


def staff_question_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    def seen(person: Person) -> Mapping[int, access.BoardRole] | None:
        """On which boards they may read questions, by a role there; None: on all."""
        if access.may_see_staff_page(person):
            return None
        roles = context.store.roster.roles_of(person.id)
        mine = {
            board: role
            for board, role in roles.items()
            if access.may_on_board(person, role, access.ON_QUESTIONS["read"])
        }
        if not mine:
            visitors.staff(person)
        return mine

    @router.get("/staff/questions")
    def of_everybody(request: Request, state: Words = "", start: Offset = 0) -> Response:
        """What people ask, open questions first."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        mine = seen(person)
        chosen = next((one for one in STATES if one == state), None)
        if state and chosen is None:
            raise Invalid(f"{state!r} isn't a state of questions", hint=f"Choose one of: {', '.join(STATES)}.")
        work = at_work(context, person.name, person, helper=mine is not None)
        found = work.questions(state=chosen, limit=SHOWN, offset=start, only=mine)
        ordered = [one["id"] for one in found["questions"] if one["rejudge"] and one["rejudge"]["state"] == "open"]
        by_name = {name: number for number, name in context.store.boards.names_of(mine or ()).items()}
        runs = {
            one["leaderboard"]
            for one in found["questions"]
            if mine is None or access.may_on_board(person, mine.get(by_name.get(one["leaderboard"], 0)), "run")
        }
        return visitors.page(
            request,
            "staff/questions.html",
            person,
            rows=found["questions"],
            open=found["open"],
            runs=runs,
            states=STATES,
            state=state,
            stands={number: work.question_rejudge_stands(number) for number in ordered},
            start=start,
            step=SHOWN,
            text_cap=TEXT_CAP,
            in_words=outcome_in_words,
        )

    def at_question(person: Person, number: int, act: BoardAct) -> Hosting:
        """Whoever may do this with the questions of its board, at work. To others it isn't there or not alike."""
        helps = not access.may_see_staff_page(person)
        if helps:
            try:
                check_helps(context, person, context.store.questions.get(number).board, act)
            except (NoHost, NotFound):
                visitors.staff(person)
        return at_work(context, person.name, person, helper=helps)

    @router.post("/staff/questions/{question_id}/{act}")
    async def act(question_id: QuestionNumber, act: Annotated[str, Path(max_length=32)], request: Request) -> Response:
        """Do it as the person who is signed in; the audit log records it."""
        form = await form_of(request)

        def done() -> Response:
            person = visitors.sender(request, form)
            work = at_question(person, question_id, _needs(act, form))
            if act not in ACTS:
                raise NotFound("act", act, known=list(ACTS))
            try:
                ACTS[act](work, question_id, form)
            except KbslurmError as error:
                return refused(context, visitors, request, person, form, error, "/staff/questions")
            return RedirectResponse("/staff/questions", status_code=303)

        return await run_in_threadpool(done)


def _needs(act: str, form: Form) -> BoardAct:
    """What a helper needs for it, as over the API."""
    if act == "answer":
        return access.ON_QUESTIONS["announce" if form.get("to_all") == "yes" else "answer"]
    return access.ON_QUESTIONS["answer" if act == "close" else "rejudge"]


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
