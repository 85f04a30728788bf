"""The pages of published code, and the form by which people agree that theirs is."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import published_code
from kbslurm.api.context import Context
from kbslurm.api.lookup import seen_board
from kbslurm.api.pages.page_files import Table, page_and_files
from kbslurm.api.pages.visitors import Visitors, form_of
from kbslurm.api.parameters import Gpu, Name, Number

PUBLISHED = ("rank", "person", "submission", "score_s")


def code_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @page_and_files(router, "/board/{leaderboard}/{gpu}/code")
    def listed(leaderboard: Name, gpu: Gpu, request: Request) -> Response:
        """Whose code is published."""
        person = visitors.who(request)
        board = seen_board(context, leaderboard, person)
        known = None if person is None else person.id
        found = published_code.list_told(context.store, board, gpu, known, context.clock.now())
        files = {"published": Table(columns=PUBLISHED, rows=found["published"])}
        return visitors.page(request, "problems/code_list.html", person, as_files=files, found=found)

    @router.get("/board/{leaderboard}/{gpu}/code/{submission_id}")
    def code(leaderboard: Name, gpu: Gpu, submission_id: Number, request: Request) -> Response:
        """The code of a published submission."""
        person = visitors.who(request)
        board = seen_board(context, leaderboard, person)
        found = published_code.code_told(context.store, board, gpu, submission_id, context.clock.now())
        return visitors.page(request, "problems/code.html", person, found=found)

    @router.post("/problem/{leaderboard}/consent")
    async def consent(leaderboard: Name, request: Request) -> Response:
        """Agree that one's code on this board is published, or take that back."""
        form = await form_of(request)

        def agreed() -> str:
            person = visitors.sender(request, form)
            board = seen_board(context, leaderboard, person)
            is_given, now = form.get("consents") == "yes", context.clock.now()
            context.store.publishing.consent(board.id, person.id, is_given=is_given, now=now)
            return board.name

        return RedirectResponse(f"/problem/{await run_in_threadpool(agreed)}", status_code=303)
