"""The public pages: boards, standings, problems and their templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import published_code
from kbslurm.api.board_json import is_open, remarks
from kbslurm.api.context import Context
from kbslurm.api.lookup import may_see_board, seen_board
from kbslurm.api.pages.board_list import BoardList
from kbslurm.api.pages.board_page import board_page
from kbslurm.api.pages.board_views import BoardViews
from kbslurm.api.pages.packing import accepts_packed
from kbslurm.api.pages.rendering import HEADERS, STATIC, packed_file, static_file, static_version
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


def board_pages(router: APIRouter, context: Context, visitors: Visitors, views: BoardViews) -> None:
    listed = BoardList(context.store)

    @router.get("/")
    def boards(request: Request) -> Response:
        """The boards that the reader may see."""
        person = visitors.who(request)
        mine = context.store.invites.boards_of(person.id) if person else frozenset()
        now = context.clock.now()
        rows = [
            {"board": board, "is_open": is_open(board, now)}
            for board in listed.now()
            if may_see_board(board, person, mine)
        ]
        return visitors.page(request, "boards.html", person, rows=rows)

    @router.get("/board/{leaderboard}")
    def any_gpu(leaderboard: Name, request: Request) -> Response:
        """The board for its first GPU type."""
        board = seen_board(context, leaderboard, visitors.who(request))
        if not board.gpus:
            return RedirectResponse(f"/problem/{board.name}", status_code=303)
        return RedirectResponse(f"/board/{board.name}/{board.gpus[0]}", status_code=303)

    board_page(router, context, visitors, views)

    @router.get("/problem/{leaderboard}")
    def problem(leaderboard: Name, request: Request) -> Response:
        """The task, the templates, and how to submit."""
        person = visitors.who(request)
        shown = seen_board(context, leaderboard, person)
        base = context.config.server.public_url or str(request.base_url).rstrip("/")
        return visitors.page(
            request,
            "problem.html",
            person,
            board=shown,
            problem=shown.problem,
            base=base,
            is_open=is_open(shown, context.clock.now()),
            remarks=remarks(shown, context.clock.now()),
            modes=[(name, words) for name, words in MODES.items() if name in shown.problem.modes],
            profiles="profile" in shown.problem.modes,
            code=published_code.rule_told(
                context.store, shown, None if person is None else person.id, context.clock.now()
            ),
            own=_own(shown, person),
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
    def template(
        leaderboard: Name, language: Annotated[str, Path(max_length=contest.NAME_CAP)], request: Request
    ) -> Response:
        """A template as a file."""
        shown = seen_board(context, leaderboard, visitors.who(request))
        text = shown.problem.templates.get(language)
        if text is None:
            raise NotFound("template", language, known=list(shown.problem.templates))
        name = f"{shown.name}.{shown.problem.lang}"
        text = for_board(text, shown.name)
        return PlainTextResponse(text, headers={**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'})

    @router.get("/static/{name}")
    async def static(name: str, request: Request, v: Annotated[str, Query(max_length=64)] = "") -> Response:
        """The stylesheet, the scripts and the icon. In our pages their address holds a version: kept for good."""
        if name not in STATIC:
            raise NotFound("file", name)
        kept = "max-age=31536000, immutable" if v == static_version(name) else "max-age=300"
        headers = {**HEADERS, "Cache-Control": f"public, {kept}", "Vary": "Accept-Encoding"}
        if accepts_packed(request):
            packed = {**headers, "Content-Encoding": "gzip"}
            return Response(packed_file(name), media_type=STATIC[name], headers=packed)
        return Response(static_file(name), media_type=STATIC[name], headers=headers)
