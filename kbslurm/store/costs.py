"""Usage and its cost: GPU-seconds and money."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from kbslurm.domain.usage import By, Usage
from kbslurm.errors import NotFound
from kbslurm.store.attempt_rows import ENDED_GPU_S, OPEN_ATTEMPT
from kbslurm.store.boards import Boards
from kbslurm.store.connect import Pool
from kbslurm.store.rows import Rows

GPU_S = f"""(a.gpus * CASE
    WHEN a.{OPEN_ATTEMPT} THEN greatest(a.reserve_s, coalesce(extract(epoch FROM %(now)s - a.started_at), 0))
    {ENDED_GPU_S} END)::float8"""

MONEY = f"({GPU_S} * a.price)"

_SPENT = f"""
SELECT lower(b.name) AS board, s.team, sum({MONEY}) AS money
FROM attempt a JOIN run r ON r.id = a.run_id JOIN submission s ON s.id = r.submission_id
JOIN leaderboard b ON b.id = s.board_id
WHERE a.price > 0 AND a.opened_at >= %(begins)s AND a.opened_at < %(ends)s GROUP BY 1, 2
"""

# By board, person, team, place or run. Usage counts in the month in which the attempt was opened. A run that a place
# refused, or gave back before it started, was never one of its runs.
_USAGE = f"""
SELECT {{key}} AS name, count(*) AS attempts, count(*) FILTER (WHERE a.{OPEN_ATTEMPT}) AS open,
    count(DISTINCT r.id) FILTER (WHERE a.state <> 'refused' AND (a.state <> 'cancelled' OR a.started_at IS NOT NULL))
        AS runs, sum({GPU_S}) AS gpu_s, sum({MONEY}) AS money,
    sum({GPU_S}) FILTER (WHERE a.price > 0) AS paid_gpu_s
FROM attempt a JOIN run r ON r.id = a.run_id JOIN submission s ON s.id = r.submission_id
JOIN leaderboard b ON b.id = s.board_id JOIN person p ON p.id = s.person_id
WHERE a.opened_at >= %(begins)s AND a.opened_at < %(ends)s
    AND (%(board)s::text IS NULL OR lower(b.name) = %(board)s)
GROUP BY 1 ORDER BY money DESC, gpu_s DESC, name
"""

_KEYS: dict[By, str] = {
    "board": "b.name",
    "person": "p.name",
    "team": "s.team",
    "place": "a.backend || ' ' || a.gpu",
    "run": "'run ' || r.id || ' (' || b.name || ', ' || p.name || ')'",
}


class Costs(Rows):
    """The usage of attempts, by board, person, team, place or run."""

    def __init__(self, pool: Pool, boards: Boards) -> None:
        super().__init__(pool)
        self._boards = boards

    def usage(
        self, by: By, begins: datetime, ends: datetime, now: datetime, *, board: str | None = None
    ) -> list[Usage]:
        """Usage between these times, of one board or all, by board, person, team, place or run; most expensive first.
        Teams are those at the time of submission."""
        ever = "SELECT FROM leaderboard WHERE lower(name) = %(board)s LIMIT 1"  # deleted ones have costs too
        if board is not None and self._one(ever, {"board": board}) is None:
            raise NotFound("board", board, known=self._boards.names())
        told = {"begins": begins, "ends": ends, "now": now, "board": board}
        return [
            Usage(**{**row, "paid_gpu_s": row["paid_gpu_s"] or 0.0})
            for row in self._all(_USAGE.format(key=_KEYS[by]), told)
        ]

    def spent(self, begins: datetime, ends: datetime, now: datetime) -> list[dict[str, Any]]:
        """The cost of attempts opened between these times, by board and team; open ones at their maximum."""
        return self._all(_SPENT, {"begins": begins, "ends": ends, "now": now})


def sums(rows: Sequence[dict[str, Any]], by: str) -> dict[str, float]:
    names = {row[by] for row in rows if row[by] is not None}
    return {name: sum(row["money"] for row in rows if row[by] == name) for name in names}
