"""What a submission came to: its author's rank, their own best before it, and the leader.

`domain.access` is the one rule on what of others is shown; their own verdicts people see always.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from kbslurm.domain import access, places
from kbslurm.domain.board import Measured
from kbslurm.domain.measure import TOO_NEAR

if TYPE_CHECKING:
    from kbslurm.domain.board import Ranking
    from kbslurm.domain.verdict import Verdict
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import Board, RunView, SubmissionView

HIDDEN = "the standings are hidden until the hosts show them"
FINAL = "the standings are final: later submissions don't change them"
FROZEN = "the standings are frozen: this submission isn't in them yet"


def places_told(
    store: PostgresStore,
    view: SubmissionView,
    now: datetime,
    ranking: Callable[[Board, str], Ranking] | None = None,
) -> list[dict[str, Any]]:
    """Of each ranked run that has its verdict, what it came to. `ranking`: the undisguised one, for whoever has it
    already."""
    board = store.boards.find(view.board, counted=False)
    if view.mode != "leaderboard" or board is None or board.id != view.board_id:
        return []
    runs = [run for run in view.runs if _is_ranked(run) and run.problem_version_id == board.problem_version_id]

    read = None if ranking is None else partial(ranking, board)
    return [_of_run(store, board, view, run, read, now) for run in runs]


def _of_run(
    store: PostgresStore,
    board: Board,
    view: SubmissionView,
    run: RunView,
    read: Callable[[str], Ranking] | None,
    now: datetime,
) -> dict[str, Any]:
    mine = _measured(run.verdict)
    own = store.standings.own_rows(board, view.person_id, [run.gpu], read)
    stands = next((one for one in own if one["submission_id"] == view.id), None)
    place = stands or next(iter(own), None)
    before = store.standings.own_before(board, run.gpu, view.person_id, view.id)
    if stands is not None:
        leader = stands["leader"]
    elif any(one["rank"] == 1 for one in own):
        leader = None
    else:
        leader = store.standings.leader(board, run.gpu, mine, read)
    return {
        "gpu_type": run.gpu,
        "score": mine.score_s,
        "interval": [mine.low_s, mine.high_s],
        "stands": stands is not None,
        "place": place,
        "before": None if before is None else {"submission_id": before.submission_id, **places.compared(mine, before)},
        "leader": leader,
        "remark": _remark(board, view, now),
    }


def _remark(board: Board, view: SubmissionView, now: datetime) -> str | None:
    if not access.shows_own_place(board.standings):
        return HIDDEN
    if board.finalised_at is not None and board.finalised_at < view.accepted_at:
        return FINAL
    until = access.shown_until(board.frozen_at)
    return FROZEN if until is not None and until < view.accepted_at and access.is_frozen(until, now) else None


def _is_ranked(run: RunView) -> bool:
    """Whether its score is one that ranks, or would if it were told apart from its author's previous one."""
    found = run.verdict
    return found is not None and found.score_s is not None and (found.ranked or found.reason == TOO_NEAR)


def _measured(found: Verdict | None) -> Measured:
    assert found is not None and found.score_s is not None
    return Measured(score_s=found.score_s, low_s=found.low_s or found.score_s, high_s=found.high_s or found.score_s)
