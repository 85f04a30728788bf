"""What a board is outside of its page: a picture, and a small page within other sites'.

All of it is for public boards only, the same for everybody, and asks nobody who they are.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from kbslurm.api.board_json import is_open
from kbslurm.api.context import Context
from kbslurm.api.lookup import seen_board
from kbslurm.api.pages.boards.kept_files import KeptFiles
from kbslurm.api.pages.charts.scales import axis_of
from kbslurm.api.pages.pictures.board_picture import MOST, Leader, Shown, board_picture
from kbslurm.api.pages.rendering import HEADERS, POLICY, closes, text_of
from kbslurm.api.parameters import Gpu, Name
from kbslurm.api.standings_cache import StandingsCache
from kbslurm.domain import access, contest
from kbslurm.domain.amounts import seconds
from kbslurm.domain.board import Standing
from kbslurm.errors import NotFound
from kbslurm.store.views import Board

# Other sites may show this page in a frame of theirs: nothing in it does anything, and it knows no reader.
EMBEDDED = {
    "Content-Security-Policy": POLICY.replace("form-action 'self'", "form-action 'none'").replace(
        "frame-ancestors 'none'", "frame-ancestors *"
    ),
    "Referrer-Policy": "same-origin",
    "Cache-Control": "public, no-cache",
}
Theme = Literal["light", "dark", "system"]
STYLES: dict[Theme, str] = {"light": "light.css", "dark": "dark.css", "system": "style.css"}


def sharing_routes(router: APIRouter, context: Context, standings: StandingsCache) -> None:
    kept = KeptFiles()

    def public(leaderboard: str, gpu: str) -> tuple[Board, str]:
        board = seen_board(context, leaderboard, None)
        return board, contest.known_gpu(gpu, board.gpus)

    def state(board: Board) -> str:
        if board.finalised_at is not None:
            return "Final standings"
        if not is_open(board, context.clock.now()):
            return "Closed"
        until = closes(board)
        return f"Open until {until}" if until else "Open"

    @router.get("/board/{leaderboard}/{gpu}/picture.png")
    def picture(leaderboard: Name, gpu: Gpu, request: Request) -> Response:
        """The leaders of a public board whose standings are shown, as a picture for links to it."""
        board, gpu = public(leaderboard, gpu)
        if not access.shows_standings(board.standings):
            raise NotFound("picture", f"{board.name} on {gpu}", hint="This board's standings aren't shown.")
        rows, _ = standings.now(board, gpu)
        said = state(board)

        def drawn() -> bytes:
            leaders = [_leader(row) for row in rows[:MOST]]
            return board_picture(Shown(board=board.name, gpu=gpu, people=len(rows), state=said, leaders=leaders))

        file = kept.of(("picture", board.id, gpu), (rows, said, board.name), drawn)
        return file.answer(request, "image/png", {**HEADERS, "Cache-Control": "public, max-age=300"})

    @router.get("/embed/board/{leaderboard}/{gpu}")
    def embedded(
        leaderboard: Name,
        gpu: Gpu,
        request: Request,
        theme: Theme = "system",
        top: Annotated[int, Query(ge=1, le=50)] = 10,
    ) -> Response:
        """A public board for frames of other sites."""
        board, gpu = public(leaderboard, gpu)
        rows, _ = standings.now(board, gpu)
        said = state(board)

        def drawn() -> bytes:
            return text_of(
                "boards/embedded_board.html",
                board=board,
                gpu=gpu,
                style=STYLES[theme],
                people=len(rows),
                state=said,
                hidden=not access.shows_standings(board.standings),
                record=seconds(rows[0].entry.score_s) if rows else "",
                rows=_with_bars(rows[:top]),
            ).encode("utf-8", "replace")

        file = kept.of(("page", board.id, gpu, theme, top), (rows, said, board.name, board.standings), drawn)
        return file.answer(request, "text/html; charset=utf-8", EMBEDDED)


def _with_bars(rows: list[Standing]) -> list[dict[str, Any]]:
    if not rows:
        return []
    # One with a wide interval doesn't squeeze the others into a corner.
    most = 2 * max(row.entry.score_s for row in rows)
    axis = axis_of([value for row in rows for value in (max(0.0, row.entry.low_s), min(row.entry.high_s, most))])
    found = []
    for row in rows:
        entry = row.entry
        left, right = axis.at(max(0.0, entry.low_s)), axis.at(min(entry.high_s, most))
        found.append(
            {
                "rank": row.rank,
                "name": entry.person,
                "score": seconds(entry.score_s),
                "said": f"95 % interval {seconds(entry.low_s)} to {seconds(entry.high_s)}",
                "left": left,
                "width": round(right - left, 2),
                "at": axis.at(entry.score_s),
            }
        )
    return found


def _leader(row: Standing) -> Leader:
    entry = row.entry
    return Leader(rank=row.rank, name=entry.person, score_s=entry.score_s, low_s=entry.low_s, high_s=entry.high_s)
