"""Boards from memory: recomputed only when something happened that can move a place."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from kbslurm.api.house import House
from kbslurm.domain import board as boards
from kbslurm.domain.board import Standing
from kbslurm.domain.run import EventId
from kbslurm.store.finals import Final
from kbslurm.store.views import Board

KEPT = 256


@dataclass(frozen=True, kw_only=True)
class _Known:
    upto: EventId
    version: int
    rows: list[Standing]


class Standings:
    """The standings of every board that somebody looked at; never older than the last event of the database."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._known: dict[tuple[int, str], _Known] = {}
        self._lock = threading.Lock()

    def of(self, board: Board, gpu: str) -> list[Standing]:
        """The ranked of this board and GPU type, best first."""
        key = (board.id, gpu)
        with self._lock:
            known = self._known.get(key)
        store = self._house.store
        if known is not None and known.version == board.problem_version_id:
            upto = store.standing_until(board.id, known.upto)
            if upto is not None:
                self._keep(key, _Known(upto=upto, version=known.version, rows=known.rows))
                return known.rows
        upto = store.last_event()
        rows = boards.ranked(store.best(board.name, gpu))
        self._keep(key, _Known(upto=upto, version=board.problem_version_id, rows=rows))
        return rows

    def lines(self, board: Board, gpu: str, *, offset: int, limit: int) -> list[dict[str, Any]]:
        """So many of the same as popcorn reads it."""
        return [line(board, gpu, row) for row in self.of(board, gpu)[offset : offset + limit]]

    def _keep(self, key: tuple[int, str], known: _Known) -> None:
        with self._lock:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[key] = known


def final_told(found: Final) -> dict[str, Any]:
    """A final that counts, as everybody may read it: who met whom, and what came of it."""
    return {
        "leaderboard_name": found.board,
        "gpu_type": found.gpu,
        "rivals": [
            {
                "place": rival.place,
                "user_name": rival.person,
                "submission_id": rival.submission_id,
                "before": rival.before_s,
                "verdict": rival.outcome.verdict if rival.outcome else None,
                "score": rival.outcome.score_s if rival.outcome else None,
                "interval": [rival.outcome.low_s, rival.outcome.high_s]
                if rival.outcome and rival.outcome.score_s is not None
                else None,
            }
            for rival in found.rivals
        ],
        "gaps": [
            {
                "ahead": found.rivals[gap.ahead].submission_id,
                "behind": found.rivals[gap.behind].submission_id,
                "ratio": gap.ratio,
                "interval": [gap.low, gap.high],
                "separated": gap.separated,
            }
            for gap in found.gaps
        ],
    }


def line(board: Board, gpu: str, row: Standing) -> dict[str, Any]:
    """One place of a board."""
    entry = row.entry
    return {
        "submission_id": entry.submission_id,
        "rank": row.rank,
        "submission_name": entry.file_name,
        "submission_time": entry.at.isoformat(),
        "submission_score": entry.score_s,
        "leaderboard_name": board.name,
        "user_id": str(entry.person_id),
        "user_name": entry.person,
        "gpu_type": gpu,
        "interval": [entry.low_s, entry.high_s],
        "tied_with": list(row.tied_with),
    }
