"""The page of one's own questions, with a form to ask."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api.context import Context
from kbslurm.api.hosting.questions import own_question
from kbslurm.api.lookup import may_see_board, seen_board
from kbslurm.api.pages.visitors import Offset, Visitors, form_of, to_login
from kbslurm.domain import contest
from kbslurm.domain.questions import TEXT_CAP, outcome_in_words
from kbslurm.errors import Invalid

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
            "people/questions.html",
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
