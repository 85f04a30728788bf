"""Beside each timed case of a submission: what the case took its author's best before it, and the leader.

One's own times are one's own. Of others only the total is public, with its interval: what a kernel takes on each size
says for which sizes it was written. Where the leader's code is published, whoever reads it can measure that for
themselves, so there, and by the same rule (`published_code.is_published`), the leader's cases are told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kbslurm.api import published_code
from kbslurm.api.comparison import Interval, Pair, cases_of
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbslurm.domain.board import Ranking
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import Board, SubmissionView


@dataclass(frozen=True, kw_only=True)
class CaseRivals:
    """What each case took them, by its spec; nothing of whom there isn't, or who isn't to be told of."""

    best: Mapping[str, Interval] = field(default_factory=dict)
    leader: Mapping[str, Interval] = field(default_factory=dict)


NO_RIVALS = CaseRivals()


def case_rivals(
    store: PostgresStore,
    view: SubmissionView,
    placed: Mapping[str, Mapping[str, Any]],
    ranking: Callable[[Board, str], Ranking],
    now: datetime,
) -> dict[str, CaseRivals]:
    """By GPU type. `placed`: what each ranked run came to; `ranking`: the standings that everybody sees."""
    board = store.boards.find(view.board, counted=False) if placed else None
    if board is None or board.id != view.board_id:
        return {}
    policy = store.publishing.of_board(board.id)
    found = {}
    for gpu, place in placed.items():
        before, rows = place["before"], ranking(board, gpu)
        leads = None
        if rows and rows[0].entry.submission_id != view.id and published_code.is_published(policy, board, rows[0], now):
            leads = rows[0].entry.submission_id
        found[gpu] = CaseRivals(
            best={} if before is None else _cases(store, before["submission_id"], gpu),
            leader={} if leads is None else _cases(store, leads, gpu),
        )
    return found


def compared(mine: Interval, other: Interval) -> Pair:
    """A case of theirs against one's own: with a ratio above one, one's own is faster."""
    return Pair(gpu="", case="", before=None, after=None, before_s=other, after_s=mine)


def _cases(store: PostgresStore, number: int, gpu: str) -> dict[str, Interval]:
    try:
        view = store.submissions.get(SubmissionId(number))
    except NotFound:  # deleted since
        return {}
    if view.removed_at is not None:
        return {}
    return cases_of(next((run for run in view.runs if run.gpu == gpu), None))
