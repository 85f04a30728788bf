"""The public pages: boards and standings; and what all pages load."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from kbslurm.api import sessions
from kbslurm.api.context import Context
from kbslurm.api.lookup import seen_board
from kbslurm.api.pages.board_views import BoardViews, Place
from kbslurm.api.pages.drawn_boards import page_with
from kbslurm.api.pages.rendering import HEADERS, STATIC, static_file, static_version
from kbslurm.api.pages.visitors import Offset, Visitors
from kbslurm.api.parameters import Gpu, Name
from kbslurm.errors import NotFound

# A browser or proxy may keep what everybody sees, if it asks each time whether that still holds.
FOR_EVERYBODY = {"Cache-Control": "no-cache", "Vary": "Cookie"}


def board_pages(router: APIRouter, context: Context, visitors: Visitors, views: BoardViews) -> None:
    @router.get("/board/{leaderboard}")
    def any_gpu(leaderboard: Name, request: Request) -> Response:
        """The board for its first GPU type."""
        board = seen_board(context, leaderboard, visitors.who(request))
        if not board.gpus:
            return RedirectResponse(f"/problem/{board.name}", status_code=303)
        return RedirectResponse(f"/board/{board.name}/{board.gpus[0]}", status_code=303)

    @router.get("/board/{leaderboard}/{gpu}")
    async def board(leaderboard: Name, gpu: Gpu, request: Request, start: Offset = 0) -> Response:
        """One board for one GPU type: the standings and the history of the record."""
        found, person = await views.of(
            Place(board=leaderboard, gpu=gpu, start=page_with(start)), sessions.secret_of(request)
        )
        drawn = found.drawn
        if person is not None:
            return HTMLResponse(drawn.for_reader(person, await visitors.csrf_soon(request)), headers=HEADERS)
        headers = {**HEADERS, **FOR_EVERYBODY, "ETag": drawn.etag}
        if names_version(request.headers.get("if-none-match"), drawn.etag):
            return Response(status_code=304, headers=headers)
        return HTMLResponse(drawn.page, headers=headers)

    @router.get("/static/{name}")
    async def static(name: str, v: Annotated[str, Query(max_length=64)] = "") -> Response:
        """The stylesheet, the scripts and the icon. In our pages their address holds a version: kept for good."""
        if name not in STATIC:
            raise NotFound("file", name)
        kept = "max-age=31536000, immutable" if v == static_version(name) else "max-age=300"
        headers = {**HEADERS, "Cache-Control": f"public, {kept}"}
        return Response(static_file(name), media_type=STATIC[name], headers=headers)


def names_version(wanted: str | None, etag: str) -> bool:
    """Whether If-None-Match names this version. Proxies that compress mark it as weak."""
    return wanted is not None and not {etag, "*"}.isdisjoint(
        one.strip().removeprefix("W/") for one in wanted.split(",")
    )
