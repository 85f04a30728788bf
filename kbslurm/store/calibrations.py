"""Reference times: ordered when due, stored by board, version and GPU type.

A run that waits for them, or for its second measurement, is `held` and never claimed. What it waits for is a predicate
over rows that `tend` checks repeatedly: nothing depends on messages or memory.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from psycopg.rows import DictRow

from kbslurm.domain.manifest import time_limit_s
from kbslurm.domain.measure import AGAIN_AFTER_S, CALIBRATION, Calibration
from kbslurm.store.connect import Connection, Pool
from kbslurm.store.people import own_person
from kbslurm.store.problems import Problems
from kbslurm.store.rows import Rows
from kbslurm.store.second_measurements import IS_HELD, release_seconds, wait_for_turn
from kbslurm.store.views import Board

_RELEASE_CALIBRATED = f"""
UPDATE run SET held = false FROM submission s
WHERE s.id = run.submission_id AND {IS_HELD} AND NOT run.second AND EXISTS (
    SELECT 1 FROM calibration c
    WHERE c.board_id = s.board_id AND c.problem_version_id = run.problem_version_id AND c.gpu = run.gpu)
"""

# GPU types of live boards, and others that ranked runs wait for, that are neither measured nor being measured.
_DUE = f"""
SELECT due.board_id, due.version, due.gpu FROM (
    SELECT b.id AS board_id, b.problem_version_id AS version, unnest(b.gpus) AS gpu FROM leaderboard b
    WHERE b.deleted_at IS NULL AND b.closed_at IS NULL AND (b.deadline_at IS NULL OR b.deadline_at > %(now)s)
    UNION
    SELECT s.board_id, run.problem_version_id, run.gpu FROM run JOIN submission s ON s.id = run.submission_id
    WHERE {IS_HELD} AND NOT run.second
) due JOIN problem_version v ON v.id = due.version AND v.paired
WHERE NOT EXISTS (
    SELECT 1 FROM calibration c
    WHERE c.board_id = due.board_id AND c.problem_version_id = due.version AND c.gpu = due.gpu
) AND NOT EXISTS (
    SELECT 1 FROM submission s JOIN run r ON r.submission_id = s.id
    WHERE s.via = '{CALIBRATION}' AND s.board_id = due.board_id AND r.problem_version_id = due.version
        AND r.gpu = due.gpu AND (r.ended_at IS NULL OR r.ended_at > %(again)s)
)
ORDER BY due.board_id, due.version, due.gpu
"""

_ORDER = f"""
WITH taken AS (
    INSERT INTO submission (person_id, board_id, mode, file_name, source, sha256, via, by_staff, accepted_at,
        removed_at)
    VALUES (%(person)s, %(board)s, 'leaderboard', 'baseline.py', %(source)s, %(sha256)s, '{CALIBRATION}', true,
        %(now)s, %(now)s)
    RETURNING id
), due AS (
    INSERT INTO run (submission_id, problem_version_id, person_id, gpu, fair_at, queued_at, cost_s, by_staff,
        secret_seed)
    SELECT id, %(version)s, %(person)s, %(gpu)s, 'epoch', %(now)s, %(cost_s)s, true, %(seed)s FROM taken
    RETURNING id, submission_id, gpu
)
INSERT INTO event (kind, subject, data, at)
SELECT 'run.queued', 'run:' || id, jsonb_build_object('submission', submission_id, 'gpu', gpu,
    'calibrates', %(board)s::bigint), %(now)s FROM due
"""

_STANDS = f"""
SELECT g.gpu, c.b_ref_s, c.at, last.state, last.reason, last.ended_at
FROM unnest(%(gpus)s::text[]) AS g(gpu)
LEFT JOIN calibration c ON c.board_id = %(board)s AND c.problem_version_id = %(version)s AND c.gpu = g.gpu
LEFT JOIN LATERAL (
    SELECT r.state, r.reason, r.ended_at FROM submission s JOIN run r ON r.submission_id = s.id
    WHERE s.board_id = %(board)s AND s.via = '{CALIBRATION}' AND r.problem_version_id = %(version)s AND r.gpu = g.gpu
    ORDER BY r.id DESC LIMIT 1
) last ON c.gpu IS NULL
"""


class Calibrations(Rows):
    """ports.Calibrations, and how those of a board stand."""

    def __init__(self, pool: Pool, problems: Problems) -> None:
        super().__init__(pool)
        self._problems = problems

    def tend(self, now: datetime) -> int:
        """Order due calibrations, and release runs whose reference times are known; returns how many."""
        told: dict[str, Any] = {"now": now, "again": now - timedelta(seconds=AGAIN_AFTER_S)}
        found = self._one(f"SELECT EXISTS ({_DUE}) AS due, EXISTS (SELECT 1 FROM run WHERE {IS_HELD}) AS held", told)
        if found is None or not (found["due"] or found["held"]):
            return 0
        done = 0
        with self._pool.transaction() as connection:
            wait_for_turn(connection)
            for due in connection.execute(_DUE.encode(), told).fetchall():
                self._order(connection, due, now)
                done += 1
            done += connection.execute(_RELEASE_CALIBRATED.encode()).rowcount
            done += release_seconds(connection, now)
        return done

    def of_board(self, board: Board) -> Mapping[str, Calibration]:
        """The live version's calibration for each of the board's GPU types; empty if the problem has no baseline."""
        if board.problem.baseline is None:
            return {}
        told = {"gpus": list(board.gpus), "board": board.id, "version": board.problem_version_id}
        return {row["gpu"]: _stands(row) for row in self._all(_STANDS, told)}

    def _order(self, connection: Connection, due: DictRow, now: datetime) -> None:
        version = int(due["version"])
        problem = self._problems.of_version(version)
        assert problem.baseline is not None
        told = {
            "person": own_person(connection, now),
            "board": due["board_id"],
            "version": version,
            "gpu": due["gpu"],
            "source": problem.baseline,
            "sha256": hashlib.sha256(problem.baseline.encode()).hexdigest(),
            "cost_s": time_limit_s(problem, "leaderboard"),
            "seed": secrets.token_hex(16),
            "now": now,
        }
        connection.execute(_ORDER.encode(), told)


def _stands(row: DictRow) -> Calibration:
    if row["b_ref_s"] is not None:
        return Calibration(gpu=row["gpu"], state="calibrated", b_ref_s=tuple(row["b_ref_s"]), at=row["at"])
    if row["ended_at"] is not None:
        return Calibration(gpu=row["gpu"], state="failed", at=row["ended_at"], reason=row["reason"])
    return Calibration(gpu=row["gpu"], state="calibrating")
