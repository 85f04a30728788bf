"""The public pages: boards and standings; and what all pages load."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from kbslurm.api.context import Context
from kbslurm.api.lookup import seen_board
from kbslurm.api.pages.boards.board_page import board_page
from kbslurm.api.pages.boards.board_views import BoardViews
from kbslurm.api.pages.packing import accepts_packed
from kbslurm.api.pages.rendering import HEADERS, STATIC, packed_file, static_file, static_version
from kbslurm.api.pages.visitors import Visitors
from kbslurm.api.parameters import Name
from kbslurm.errors import NotFound


def board_pages(router: APIRouter, context: Context, visitors: Visitors, views: BoardViews) -> None:
    @router.get("/board/{leaderboard}")
    def any_gpu(leaderboard: Name, request: Request) -> Response:
        """The board for its first GPU type."""
        board = seen_board(context, leaderboard, visitors.who(request))
        if not board.gpus:
            return RedirectResponse(f"/problem/{board.name}", status_code=303)
        return RedirectResponse(f"/board/{board.name}/{board.gpus[0]}", status_code=303)

    board_page(router, context, visitors, views)

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

    @router.get("/favicon.ico")
    async def icon(request: Request) -> Response:
        """Where browsers look for an icon beside what names none: a file, a picture, JSON."""
        return await static("icon.svg", request)
