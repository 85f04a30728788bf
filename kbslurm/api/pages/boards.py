"""The public pages: boards, standings, problems and their templates."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response

from kbslurm.api import waiting
from kbslurm.api.board_json import is_open
from kbslurm.api.context import Context
from kbslurm.api.lookup import may_see_board, seen_board
from kbslurm.api.pages import drawing
from kbslurm.api.pages.rendering import HEADERS, STATIC, static_file
from kbslurm.api.pages.visitors import Offset, Visitors
from kbslurm.api.parameters import Gpu, Name
from kbslurm.api.standings_cache import StandingsCache
from kbslurm.domain import contest, measure
from kbslurm.domain.amounts import score
from kbslurm.domain.board import Standing
from kbslurm.domain.source import for_board
from kbslurm.errors import NotFound
from kbslurm.store.finals import Final

PAGE = 100


def board_pages(
    router: APIRouter, context: Context, visitors: Visitors, histories: waiting.Histories, standings: StandingsCache
) -> None:

    @router.get("/")
    def boards(request: Request) -> Response:
        """The boards that the reader may see."""
        person = visitors.who(request)
        mine = context.store.invites.boards_of(person.id) if person else frozenset()
        now = context.clock.now()
        rows = [
            {"board": board, "is_open": is_open(board, now)}
            for board in context.store.boards.all()
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

    @router.get("/board/{leaderboard}/{gpu}")
    def board(leaderboard: Name, gpu: Gpu, request: Request, start: Offset = 0) -> Response:
        """One board for one GPU type: the standings and the history of the record."""
        person = visitors.who(request)
        shown = seen_board(context, leaderboard, person)
        known = contest.known_gpu(gpu, shown.gpus)
        seen = context.store.events.last()
        rows, records = standings.of(shown, known), standings.records(shown, known)
        return visitors.page(
            request,
            "board.html",
            person,
            board=shown,
            gpu=known,
            seen=seen,
            rows=[_standing(row) for row in rows[start : start + PAGE]],
            start=start,
            total=len(rows),
            step=PAGE,
            trend=drawing.curve([(one.at, one.score_s, one.person) for one in records], steps=True),
            queue=waiting.runner_queue(context, histories, known),
            final=_final(context.store.finals.applied(shown.name, known)),
            note=measure.sentence(
                known, context.store.calibrations.of_board(shown), paired=shown.problem.baseline is not None
            ),
        )

    @router.get("/problem/{leaderboard}")
    def problem(leaderboard: Name, request: Request) -> Response:
        """The task, the templates, and how to submit."""
        person = visitors.who(request)
        shown = seen_board(context, leaderboard, person)
        base = context.config.server.public_url or str(request.base_url).rstrip("/")
        return visitors.page(request, "problem.html", person, board=shown, problem=shown.problem, base=base)

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
    async def static(name: str) -> Response:
        """The stylesheet, the script and the icon."""
        if name not in STATIC:
            raise NotFound("file", name)
        headers = {**HEADERS, "Cache-Control": "public, max-age=300"}
        return Response(static_file(name), media_type=STATIC[name], headers=headers)


def _final(found: Final | None) -> list[dict[str, Any]]:
    rows = []
    for rival in found.rivals if found else ():
        came, after = rival.outcome, ""
        if came is not None and came.score_s is not None:
            after = score(came.score_s, came.low_s, came.high_s)
        elif came is not None:
            after = came.verdict
        rows.append({"place": rival.place, "person": rival.person, "before": rival.before_s, "after": after})
    return rows


def _standing(row: Standing) -> dict[str, Any]:
    entry = row.entry
    tied = f"{row.best_rank}–{row.worst_rank}" if row.tied_with else ""
    shown = score(entry.score_s, entry.low_s, entry.high_s)
    return {"rank": row.rank, "tied": tied, "person": entry.person, "score": shown, "at": entry.at}
