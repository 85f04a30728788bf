"""A problem's page: the task, its cases and limits, what the judge does, templates, and how to submit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import published_code
from kbslurm.api.board_json import is_open, remarks
from kbslurm.api.context import Context
from kbslurm.api.lookup import seen_board
from kbslurm.api.pages.boards.link_cards import board_card
from kbslurm.api.pages.countdown import left
from kbslurm.api.pages.page_files import page_and_files
from kbslurm.api.pages.problems import problem_told
from kbslurm.api.pages.rendering import HEADERS
from kbslurm.api.pages.text.markdown import statement
from kbslurm.api.pages.visitors import Visitors, form_of
from kbslurm.api.parameters import Name
from kbslurm.domain import access, contest
from kbslurm.domain.amounts import score
from kbslurm.domain.source import for_board
from kbslurm.errors import NotFound
from kbslurm.store.views import Board, Person

MODES: Mapping[str, str] = {
    "leaderboard": "ranked",
    "test": "test: is it correct?",
    "benchmark": "benchmark: timed, not ranked",
    "profile": "profile",
}
Language = Annotated[str, Path(max_length=contest.NAME_CAP)]


def problem_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @page_and_files(router, "/problem/{leaderboard}", at="/cases")
    def problem(leaderboard: Name, request: Request) -> Response:
        """The task, the templates, and how to submit."""
        person, now = visitors.who(request), context.clock.now()
        shown = seen_board(context, leaderboard, person)
        base = context.config.server.public_url or str(request.base_url).rstrip("/")
        cases = problem_told.cases(shown)
        return visitors.page(
            request,
            "problems/problem.html",
            person,
            as_files={"cases": problem_told.as_table(cases)},
            board=shown,
            card=board_card(context, shown),
            problem=shown.problem,
            base=base,
            is_open=is_open(shown, now),
            left=left(shown.deadline_at, now),
            remarks=remarks(shown, now),
            modes=[(name, words) for name, words in MODES.items() if name in shown.problem.modes],
            profiles="profile" in shown.problem.modes,
            code=published_code.rule_told(context.store, shown, None if person is None else person.id, now),
            own=_own(shown, person),
            task=statement(shown.description or shown.problem.description),
            cases=cases,
            limits=problem_told.limits(shown),
            judging=problem_told.judging(shown),
            forbidden=problem_told.FORBIDDEN,
            templates={name: for_board(text, shown.name) for name, text in shown.problem.templates.items()},
            languages=problem_told.LANGUAGES,
        )

    def _own(board: Board, person: Person | None) -> list[dict[str, Any]]:
        """One's own places, where one can't be sure to find oneself in what everybody sees."""
        if person is None or (access.names_people(board.names) and access.shows_standings(board.standings)):
            return []
        rows = context.store.standings.own_rows(board, person.id)
        return [{**row, "score": score(row["score"], *row["interval"], ranked=True)} for row in rows]

    @router.post("/problem/{leaderboard}/nickname")
    async def nickname(leaderboard: Name, request: Request) -> Response:
        """Choose as whom others see one there; empty: by one's own name."""
        form = await form_of(request)

        def chosen() -> str:
            person = visitors.sender(request, form)
            board, name = seen_board(context, leaderboard, person), form.get("nickname", "")
            wanted = name if name.strip() else None
            context.store.nicknames.choose(board, person, wanted, now=context.clock.now())
            return board.name

        return RedirectResponse(f"/problem/{await run_in_threadpool(chosen)}", status_code=303)

    @router.get("/problem/{leaderboard}/template/{language}")
    def template(leaderboard: Name, language: Language, request: Request) -> Response:
        """A template as a file."""
        shown = seen_board(context, leaderboard, visitors.who(request))
        text = shown.problem.templates.get(language)
        if text is None:
            raise NotFound("template", language, known=list(shown.problem.templates))
        name = f"{shown.name}.{shown.problem.lang}"
        text = for_board(text, shown.name)
        return PlainTextResponse(text, headers={**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'})
