"""The hall: a board as large as the screen, for a projector. It is what everybody may see, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from kbslurm.api.context import Context
from kbslurm.api.lookup import seen_board
from kbslurm.api.pages.boards.front import TWICE
from kbslurm.api.pages.countdown import left
from kbslurm.api.pages.rendering import closes
from kbslurm.api.pages.visitors import Visitors
from kbslurm.api.parameters import Gpu, Name
from kbslurm.api.standings_cache import StandingsCache
from kbslurm.domain import access, contest
from kbslurm.domain.amounts import score, seconds
from kbslurm.domain.board import Entry, Standing
from kbslurm.store.views import Board

SHOWN = 200  # places


@dataclass(frozen=True, kw_only=True)
class HallRow:
    """A place as a hall shows it. `key` stays the same when its owner moves; `share` is the score of the first in
    percent of theirs, `behind` how far they are from the first."""

    key: str
    rank: int
    tied: str
    person: str
    score: str
    share: float
    behind: str


def hall_page(router: APIRouter, context: Context, visitors: Visitors, standings: StandingsCache) -> None:
    @router.get("/board/{leaderboard}/{gpu}/hall")
    def hall(leaderboard: Name, gpu: Gpu, request: Request) -> Response:
        """The standings of this board for everybody in the room."""
        person = visitors.who(request)
        board = seen_board(context, leaderboard, person)
        gpu = contest.known_gpu(gpu, board.gpus)
        rows, records = standings.now(board, gpu)
        return visitors.page(
            request,
            "boards/hall.html",
            person,
            board=board.name,
            gpu=gpu,
            gpus=board.gpus,
            rows=hall_rows(rows[:SHOWN]),
            people=len(rows),
            hidden=not access.shows_standings(board.standings),
            record=_record(records),
            **times_of(context, board),
        )


def times_of(context: Context, board: Board) -> dict[str, Any]:
    """What the head of a hall says of a board's times."""
    now = context.clock.now()
    is_over = board.closed_at is not None or contest.closed(board.deadline_at, now)
    frozen = board.frozen_at is not None and access.is_frozen(board.frozen_at, now)
    return {
        "is_over": is_over,
        "deadline_at": None if is_over else board.deadline_at,
        "left": left(board.deadline_at, now),
        "closes": closes(board),
        "frozen_since": contest.at_home(board.frozen_at, board.zone) if board.frozen_at and frozen else "",
        "freezes": contest.at_home(board.frozen_at, board.zone) if board.frozen_at and not frozen else "",
    }


def hall_rows(rows: Sequence[Standing], best_s: float | None = None) -> list[HallRow]:
    """These places; the first of them leads, unless `best_s` says with what score somebody else does."""
    first_s = best_s if best_s is not None else rows[0].entry.score_s if rows else 1.0
    return [_row(row, first_s) for row in rows]


def _row(row: Standing, first_s: float) -> HallRow:
    entry, ratio = row.entry, row.entry.score_s / first_s
    return HallRow(
        key=str(entry.side),
        rank=row.rank,
        tied=f"{row.best_rank}–{row.worst_rank}" if row.tied_with else "",
        person=entry.person,
        score=score(entry.score_s, entry.low_s, entry.high_s, ranked=True),
        share=round(100 / ratio, 2),
        behind="" if ratio <= 1 else f"{ratio:.3g}×" if ratio >= TWICE else f"+{100 * (ratio - 1):.2g} %",
    )


def _record(records: Sequence[Entry]) -> Mapping[str, Any] | None:
    """The newest record, how much faster it is than the one before, and whose that was if it was somebody else's. `key`
    tells it from any other."""
    if not records:
        return None
    last, before = records[-1], records[-2] if len(records) > 1 else None
    return {
        "key": f"{len(records)}-{last.run_id}",
        "person": last.person,
        "score": seconds(last.score_s),
        "faster": "" if before is None else f"{100 * (1 - last.score_s / before.score_s):.2g} %",
        "before": "" if before is None or before.side == last.side else before.person,
    }
