"""The staff's pages of all boards, and for a new one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work
from kbslurm.api.hosting.hosting import Hosting
from kbslurm.api.pages.page_files import Table, page_and_files
from kbslurm.api.pages.staff.board_forms import LEVELS, gpus_of, isolation_of, text_of
from kbslurm.api.pages.staff.forms import refused
from kbslurm.api.pages.staff.service import open_boards
from kbslurm.api.pages.visitors import Visitors, form_of, to_login
from kbslurm.domain import access, contest
from kbslurm.errors import Invalid, KbslurmError
from kbslurm.store.views import AtBoard, Board

Word = Annotated[str, Query(max_length=contest.NAME_CAP)]
COLUMNS = (
    "board", "problem", "state", "visibility", "deadline", "gpus", "course", "submissions", "queued", "running",
    "failed", "questions", "rejudges", "finals",
)  # fmt: skip


def staff_boards_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @page_and_files(router, "/staff/boards")
    def overview(request: Request) -> Response:
        """Every board: how it stands, what is going on there, and what awaits a host."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        visitors.staff(person)
        now, going_on = context.clock.now(), context.store.overview.boards(now=context.clock.now())
        boards = open_boards(context.store.boards.all(), now)
        rows = [(one, _state(one, now), going_on.get(one.id)) for one in boards]
        return visitors.page(
            request,
            "staff/boards.html",
            person,
            as_files={"boards": Table(columns=COLUMNS, rows=(_as_row(*row) for row in rows))},
            rows=rows,
        )

    @router.get("/staff/boards/new")
    def asked(request: Request, course: Word = "", problem: Word = "") -> Response:
        """The form for a new board, on a problem that is here already."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        visitors.staff(person)
        work = at_work(context, person.name, person)
        return visitors.page(
            request,
            "staff/new_board.html",
            person,
            problems=sorted({one.name for one in context.store.problems.all()}),
            courses=[one["course"] for one in work.courses()],
            course=course.strip().lower(),
            problem=problem.strip(),
            offered=work.offered(),
            levels=LEVELS,
            usual=context.config.policy.ranked_min_isolation,
        )

    @router.post("/staff/boards/new")
    async def create(request: Request) -> Response:
        """Create it as the person who is signed in; the audit log records it."""
        form = await form_of(request)

        def made() -> Response:
            person = visitors.staff(visitors.sender(request, form))
            try:
                found = _made(at_work(context, person.name, person), form)
            except KbslurmError as error:
                return refused(context, visitors, request, person, form, error, "/staff/boards/new")
            if found["warnings"]:
                return visitors.page(
                    request, "warned.html", person, board=found["leaderboard"], warnings=found["warnings"]
                )
            return RedirectResponse(f"/staff/board/{found['leaderboard']}", status_code=303)

        return await run_in_threadpool(made)


def _made(work: Hosting, form: Mapping[str, str]) -> Mapping[str, Any]:
    problem = text_of(form, "problem")
    if not problem:
        raise Invalid("no problem was chosen", hint="Add one first, at /staff/problems.")
    return work.new_board(
        text_of(form, "name"),
        problem=problem,
        gpus=gpus_of(form),
        deadline=text_of(form, "deadline") or None,
        zone=text_of(form, "zone") or "UTC",
        description=form.get("description", "").strip() or None,
        visibility=contest.visibility(text_of(form, "visibility") or "public"),
        min_isolation=isolation_of(form),
        confirm=form.get("confirm") == "yes",
        course=text_of(form, "course") or None,
        teams=form.get("teams") == "yes",
    )


def _as_row(board: Board, state: str, going: AtBoard | None) -> dict[str, Any]:
    return {
        "board": board.name,
        "problem": board.problem_name,
        "state": state,
        "visibility": board.visibility,
        "deadline": board.deadline_at,
        "gpus": list(board.gpus),
        "course": board.course,
        "submissions": board.submissions,
        **{name: getattr(going, name) if going else 0 for name in COLUMNS[8:]},
    }


def _state(board: Board, now: datetime) -> str:
    """How it stands, in a word."""
    if board.finalised_at is not None:
        return "final"
    if board.closed_at is not None or access.is_past(board.deadline_at, now):
        return "over"
    return "frozen" if access.is_frozen(board.frozen_at, now) else "open"
