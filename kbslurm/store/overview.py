"""An overview for hosts: the queue by GPU type, what is waiting and why, and what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from kbslurm.domain import waiting
from kbslurm.store.boards import Boards
from kbslurm.store.broken_off import BrokenOff
from kbslurm.store.connect import Pool
from kbslurm.store.gpu_budgets import GpuBudgets
from kbslurm.store.quarantine import QUARANTINED
from kbslurm.store.rows import Rows, or_now
from kbslurm.store.views import AtBoard, Attention, Decision, GpuQueue, Waiting, Want

OLD_IN_QUEUE = timedelta(hours=6)
OLD_UNSENT = timedelta(minutes=10)
NAMED = 5


def _counted(number: str, what: str) -> str:
    """SQL for `1 run`, `2 runs`."""
    return f"({number} || CASE WHEN {number} = 1 THEN ' {what}' ELSE ' {what}s' END)"


_ATTENTION = f"""
SELECT 'ambiguous' AS kind, 'run:' || a.run_id AS subject, 'run ' || a.run_id || ': attempt ' || a.number || ' at '
    || a.backend || ' may or may not have been started: ' || a.reason AS text, a.opened_at AS since
FROM attempt a WHERE a.state = 'ambiguous'
UNION ALL
SELECT 'failed', 'run:' || id, 'run ' || id || ' failed after ' || {_counted("attempts", "attempt")} || ': ' || reason,
    ended_at
FROM run WHERE state = 'failed' AND ended_at > %(now)s - interval '1 day'
UNION ALL
SELECT 'quarantined', 'node:' || node, node || ' at ' || backend || ' is left out: runs of ' || people
    || ' people failed there within the hour', since
FROM ({QUARANTINED}) q
UNION ALL
SELECT 'unsteady', 'node:' || node, 'the baseline was not its usual self on ' || node || ' at ' || backend || ' in '
    || {_counted("count(*)", "run")} || ' of '
    || CASE count(DISTINCT person_id) WHEN 1 THEN '1 person' ELSE count(DISTINCT person_id) || ' people' END
    || ' within a day', max(at)
FROM baseline_point WHERE NOT inside AND at > %(now)s - interval '1 day' GROUP BY backend, node
UNION ALL
SELECT 'old', 'gpu:' || gpu, {_counted("count(*)", "run")} || CASE count(*) WHEN 1 THEN ' has' ELSE ' have' END
    || ' waited for ' || gpu || ' for more than ' || extract(epoch FROM %(old)s::interval)::int / 3600 || ' hours: '
    || 'run ' || array_to_string((array_agg(id ORDER BY queued_at, id))[1:{NAMED}], ', ')
    || CASE WHEN count(*) > {NAMED} THEN ' and others' ELSE '' END, min(queued_at)
FROM run WHERE state = 'queued' AND queued_at < %(now)s - %(old)s::interval GROUP BY gpu
UNION ALL
SELECT 'old', 'run:' || run_id, 'run ' || run_id || ': attempt ' || number || ' was given to ' || backend
    || ', which has not taken it so far' || coalesce(': ' || nullif(telemetry ->> 'waits', ''), ''), opened_at
FROM attempt WHERE state = 'intent' AND opened_at < %(now)s - %(unsent)s::interval
ORDER BY since
"""

_WAITS = """
SELECT backend, gpu, state, coalesce(telemetry ->> 'waits', '') AS waits, reason, count(*) AS attempts
FROM attempt WHERE state IN ('intent', 'ambiguous', 'submitted') GROUP BY 1, 2, 3, 4, 5
"""

_OF_BOARD = """
    s.removed_at IS NULL AND (%(board)s::bigint IS NULL OR s.board_id = %(board)s)
    AND (%(since)s::timestamptz IS NULL OR s.accepted_at >= %(since)s)
"""

_STATS = f"""
SELECT count(DISTINCT s.id) AS submissions, count(DISTINCT s.person_id) AS people, count(r.id) AS runs,
    count(*) FILTER (WHERE r.state = 'queued') AS queued,
    count(*) FILTER (WHERE r.state IN ('launching', 'running')) AS running,
    count(*) FILTER (WHERE r.state = 'failed') AS failed
FROM submission s LEFT JOIN run r ON r.submission_id = s.id WHERE {_OF_BOARD}
"""

_STATS_VERDICTS = f"""
SELECT v.name, count(*) AS n FROM submission s JOIN run r ON r.submission_id = s.id JOIN verdict v ON v.run_id = r.id
WHERE {_OF_BOARD} GROUP BY v.name ORDER BY v.name
"""

_STATS_GPUS = f"""
SELECT r.gpu, count(DISTINCT r.id) AS runs,
    coalesce(sum(extract(epoch FROM a.ended_at - a.started_at)) FILTER (WHERE a.ended_at > a.started_at), 0)::float8
    AS gpu_s
FROM submission s JOIN run r ON r.submission_id = s.id LEFT JOIN attempt a ON a.run_id = r.id
WHERE {_OF_BOARD} GROUP BY r.gpu ORDER BY r.gpu
"""


# What is going on at each board, and what awaits a host there: open rows, and a day's failures.
_BOARDS = """
SELECT board_id, sum(queued)::int AS queued, sum(running)::int AS running, sum(failed)::int AS failed,
    sum(questions)::int AS questions, sum(rejudges)::int AS rejudges, sum(finals)::int AS finals
FROM (
    SELECT s.board_id, count(*) FILTER (WHERE r.state = 'queued') AS queued,
        count(*) FILTER (WHERE r.state <> 'queued') AS running, 0 AS failed, 0 AS questions, 0 AS rejudges, 0 AS finals
    FROM run r JOIN submission s ON s.id = r.submission_id WHERE r.state IN ('queued', 'launching', 'running')
    GROUP BY 1
    UNION ALL SELECT s.board_id, 0, 0, count(*), 0, 0, 0 FROM run r JOIN submission s ON s.id = r.submission_id
    WHERE r.state = 'failed' AND r.ended_at > %(now)s - interval '1 day' GROUP BY 1
    UNION ALL SELECT board_id, 0, 0, 0, count(*), 0, 0 FROM question WHERE state = 'open' GROUP BY 1
    UNION ALL SELECT board_id, 0, 0, 0, 0, count(*), 0 FROM rejudging WHERE state = 'open' GROUP BY 1
    UNION ALL SELECT board_id, 0, 0, 0, 0, 0, count(*) FROM final WHERE state = 'open' GROUP BY 1
) each JOIN leaderboard b ON b.id = each.board_id WHERE b.deleted_at IS NULL GROUP BY board_id
"""

_DECISIONS = """
SELECT 'rejudge' AS kind, b.name AS board, '' AS gpu, j.created_at AS since, j.created_by AS by,
    (SELECT count(*) FROM run r WHERE r.rejudging_id = j.id AND r.ended_at IS NULL)::int AS open
FROM rejudging j JOIN leaderboard b ON b.id = j.board_id WHERE j.state = 'open' AND b.deleted_at IS NULL
UNION ALL
SELECT 'final', b.name, f.gpu, f.created_at, f.created_by,
    (SELECT count(*) FROM run r WHERE r.id = f.run_id AND r.ended_at IS NULL)::int
FROM final f JOIN leaderboard b ON b.id = f.board_id WHERE f.state = 'open' AND b.deleted_at IS NULL
ORDER BY since
"""


class Overview(Rows):
    """The service's state, for `kbslurm status` and the metrics."""

    def __init__(self, pool: Pool, boards: Boards, budgets: GpuBudgets) -> None:
        super().__init__(pool)
        self._boards, self._budgets, self._broken_off = boards, budgets, BrokenOff(pool)

    def attention(self, *, now: datetime | None = None) -> list[Attention]:
        """What needs a host's attention, oldest first."""
        at = or_now(now)
        found = [
            Attention(**row) for row in self._all(_ATTENTION, {"now": at, "old": OLD_IN_QUEUE, "unsent": OLD_UNSENT})
        ]
        found += [
            Attention(kind="budget", subject=f"course:{course}", text=text, since=since)
            for course, text, since in self._budgets.attention(at)
        ]
        found += self._broken_off.attention(at)
        return sorted(found, key=lambda one: one.since)

    def boards(self, *, now: datetime | None = None) -> dict[int, AtBoard]:
        """What is going on at each board, by its number; a board at which nothing is is missing."""
        return {row["board_id"]: AtBoard(**row) for row in self._all(_BOARDS, {"now": or_now(now)})}

    def decisions(self) -> list[Decision]:
        """The rejudges and finals that wait until a host applies or discards them, oldest first."""
        return [Decision(**row) for row in self._all(_DECISIONS)]

    def submissions_of(self, runs: Collection[int]) -> dict[int, int]:
        """The submissions of these runs, by the runs' numbers."""
        found = self._all("SELECT id, submission_id FROM run WHERE id = ANY(%(runs)s)", {"runs": list(runs)})
        return {row["id"]: row["submission_id"] for row in found}

    def queue(self) -> list[GpuQueue]:
        """The open runs by GPU type."""
        found = self._all(
            "SELECT gpu, count(*) FILTER (WHERE state = 'queued') AS queued,"
            " count(*) FILTER (WHERE state = 'launching') AS launching,"
            " count(*) FILTER (WHERE state = 'running') AS running,"
            " min(queued_at) FILTER (WHERE state = 'queued') AS oldest_at"
            " FROM run WHERE state IN ('queued', 'launching', 'running') GROUP BY gpu ORDER BY gpu"
        )
        return [GpuQueue(**row) for row in found]

    def wants(self) -> list[Want]:
        """What the claimable queued runs need from a place."""
        found = self._all(
            "SELECT run.gpu, v.ranks AS gpus, run.by_staff, count(*) AS runs"
            " FROM run JOIN problem_version v ON v.id = run.problem_version_id"
            " WHERE run.state = 'queued' AND NOT run.held GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        )
        return [Want(**row) for row in found]

    def waits(self) -> list[Waiting]:
        """Why attempts haven't started."""
        counts: Counter[tuple[str, str, str, bool]] = Counter()
        for row in self._all(_WAITS):
            why = waiting.of_attempt(row["state"], row["waits"], row["reason"])
            if why:
                counts[row["backend"], row["gpu"], why, row["state"] == "submitted"] += row["attempts"]
        return [
            Waiting(backend=backend, gpu=gpu, reason=why, attempts=attempts, submitted=submitted)
            for (backend, gpu, why, submitted), attempts in sorted(counts.items())
        ]

    def stats(self, *, board: str | None = None, since: datetime | None = None) -> dict[str, Any]:
        """Counts for this board, or for all, since then."""
        held = None if board is None else self._boards.get(board)
        told = {"board": held.id if held else None, "since": since}
        counts = self._one(_STATS, told)
        verdicts = self._all(_STATS_VERDICTS, told)
        gpus = self._all(_STATS_GPUS, told)
        assert counts is not None
        return {
            **counts,
            "verdicts": {row["name"]: row["n"] for row in verdicts},
            "gpus": {row["gpu"]: {"runs": row["runs"], "gpu_s": row["gpu_s"]} for row in gpus},
        }
