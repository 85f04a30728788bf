"""Measuring a scored submission at another place as well, for comparison: it never ranks."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import DictRow

from kbslurm.domain.drift import SHADOW, Drift, Pair, Ranked, drift
from kbslurm.errors import Invalid
from kbslurm.store.boards import Boards
from kbslurm.store.claim_sql import OF_THE_SERVICE
from kbslurm.store.connect import Connection, Pool
from kbslurm.store.people import own_person
from kbslurm.store.places import LATELY
from kbslurm.store.rows import Rows, note_event

BY_POLICY = "the policy"
BY_ITSELF = ", by itself"  # the same place, but a job of its own instead of a warm worker

_MEASURED = """
SELECT r.id AS run, r.problem_version_id AS version, r.gpu, r.cost_s, r.by_staff, s.board_id AS board, s.source,
    s.sha256, s.file_name, a.backend AS ran_at, a.keeper_id IS NOT NULL AS warm
FROM run r JOIN submission s ON s.id = r.submission_id JOIN verdict v ON v.run_id = r.id
JOIN attempt a ON a.id = v.attempt_id
WHERE s.id = %(submission)s AND s.mode = 'leaderboard' AND s.via <> ALL(%(of_the_service)s) AND r.counts
    AND v.name = 'passed' AND v.score_s IS NOT NULL AND r.gpu = ANY(%(gpus)s) ORDER BY r.id
"""

# Only for recent runs: an old one says nothing new about a place.
_RANKED = f"""
SELECT r.id AS run, r.submission_id AS submission, lower(b.name) AS board, r.gpu, a.backend,
    r.cost_s * pv.ranks AS gpu_s, a.keeper_id IS NOT NULL AS warm
FROM run r JOIN submission s ON s.id = r.submission_id JOIN leaderboard b ON b.id = s.board_id
JOIN problem_version pv ON pv.id = r.problem_version_id
JOIN verdict v ON v.run_id = r.id JOIN attempt a ON a.id = v.attempt_id
WHERE r.id > (SELECT max(id) FROM run) - {LATELY} AND r.ended_at > %(now)s - interval '1 hour' AND r.counts
    AND s.mode = 'leaderboard' AND v.name = 'passed' AND v.ranked AND v.score_s IS NOT NULL AND s.removed_at IS NULL
    AND s.via <> ALL(%(of_the_service)s)
    AND b.deleted_at IS NULL AND b.problem_version_id = r.problem_version_id
    AND NOT EXISTS (SELECT FROM shadow WHERE shadow.of_run_id = r.id)
ORDER BY r.id
"""

_ORDER_SHADOW = f"""
WITH taken AS (
    INSERT INTO submission (person_id, board_id, mode, file_name, source, sha256, via, by_staff, accepted_at,
        removed_at)
    VALUES (%(person)s, %(board)s, 'leaderboard', %(file_name)s, %(source)s, %(sha256)s, '{SHADOW}', %(by_staff)s,
        %(now)s, %(now)s)
    RETURNING id
), due AS (
    INSERT INTO run (submission_id, problem_version_id, person_id, gpu, fair_at, queued_at, cost_s, by_staff,
        secret_seed, counts, may_rank, pinned, cold)
    SELECT id, %(version)s, %(person)s, %(gpu)s, %(now)s, %(now)s, %(cost_s)s, %(by_staff)s, %(seed)s, false, false,
        %(place)s, %(cold)s FROM taken
    RETURNING id, submission_id, gpu
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'run.queued', 'run:' || id, jsonb_build_object('submission', submission_id, 'gpu', gpu,
        'shadow', %(run)s::bigint, 'backend', %(place)s::text), %(now)s FROM due
)
INSERT INTO shadow (run_id, of_run_id, backend, way, created_by, created_at)
SELECT id, %(run)s, %(place)s, CASE WHEN %(cold)s THEN 'cold' ELSE '' END, %(by)s, %(now)s FROM due RETURNING run_id
"""

_SHADOWS = f"""
SELECT sh.backend || CASE sh.way WHEN 'cold' THEN '{BY_ITSELF}' ELSE '' END AS place, r.gpu, r.state,
    v.name AS verdict, v.score_s AS there_s, v.low_s AS there_low_s,
    v.high_s AS there_high_s, o.score_s AS home_s, o.low_s AS home_low_s, o.high_s AS home_high_s
FROM shadow sh JOIN run r ON r.id = sh.run_id JOIN submission s ON s.id = r.submission_id
LEFT JOIN verdict v ON v.run_id = r.id JOIN verdict o ON o.run_id = sh.of_run_id
WHERE s.board_id = %(board)s AND r.problem_version_id = %(version)s ORDER BY sh.backend, r.gpu, r.id
"""


@dataclass(frozen=True, kw_only=True)
class ShadowView:
    """A board's shadow runs at a place: how many are open, failed, or make pairs."""

    place: str
    gpu: str
    open: int
    without_score: int
    drift: Drift | None


class Shadows(Rows):
    """ports.Shadows, and what hosts order and see."""

    def __init__(self, pool: Pool, boards: Boards) -> None:
        super().__init__(pool)
        self._boards = boards

    def order(self, submission: int, place: str, gpus: Sequence[str], *, by: str, now: datetime) -> list[int]:
        """Measure a scored submission again, at this place; returns the runs' numbers. They never rank."""
        asked = {"submission": submission, "of_the_service": OF_THE_SERVICE, "gpus": list(gpus)}
        with self._pool.transaction() as connection:
            found = connection.execute(_MEASURED.encode(), asked).fetchall()
            if not found:
                raise Invalid(
                    f"submission {submission} has no score on a GPU type that {place} has",
                    hint="Choose a leaderboard submission that has passed.",
                )
            person = own_person(connection, now)
            ids = [_ordered(connection, row, person, place, by, now) for row in found]
            note_event(connection, "staff.shadow", f"submission:{submission}", {"place": place, "by": by}, now)
        return ids

    def order_cold(self, submission: int, gpus: Sequence[str], *, by: str, now: datetime) -> list[int]:
        """Measure a submission that ran in a warm worker again, at the same place by a job of its own; returns the
        runs' numbers."""
        asked = {"submission": submission, "of_the_service": OF_THE_SERVICE, "gpus": list(gpus)}
        with self._pool.transaction() as connection:
            found = connection.execute(_MEASURED.encode(), asked).fetchall()
            warm = [row for row in found if row["warm"]]
            if not warm:
                raise Invalid(
                    f"submission {submission} has no score from a warm worker",
                    hint="kbslurm why -s NUMBER says where it ran; --on PLACE measures it at another place.",
                )
            person = own_person(connection, now)
            ids = [_ordered(connection, row, person, row["ran_at"], by, now, cold=True) for row in warm]
            note_event(connection, "staff.shadow", f"submission:{submission}", {"way": "cold", "by": by}, now)
        return ids

    def candidates(self, now: datetime) -> Sequence[Ranked]:
        return [Ranked(**row) for row in self._all(_RANKED, {"now": now, "of_the_service": OF_THE_SERVICE})]

    def order_once(self, ranked: Ranked, place: str, now: datetime, *, cold: bool = False) -> bool:
        asked = {"submission": ranked.submission, "of_the_service": OF_THE_SERVICE, "gpus": [ranked.gpu]}
        with self._pool.transaction() as connection:
            # Serialises concurrent orders, so that the second one sees what the first one did.
            connection.execute(b"SELECT FROM run WHERE id = %(run)s FOR UPDATE", {"run": ranked.run})
            there = connection.execute(b"SELECT FROM shadow WHERE of_run_id = %(run)s", {"run": ranked.run}).fetchone()
            found = connection.execute(_MEASURED.encode(), asked).fetchall()
            rows = [row for row in found if row["run"] == ranked.run]
            if there is not None or not rows:
                return False
            _ordered(connection, rows[0], own_person(connection, now), place, BY_POLICY, now, cold=cold)
            return True

    def of_board(self, board: str) -> list[ShadowView]:
        """Other places' times for this board's problem, by place and GPU type."""
        held = self._boards.get(board)
        seen: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self._all(_SHADOWS, {"board": held.id, "version": held.problem_version_id}):
            seen.setdefault((row.pop("place"), row.pop("gpu")), []).append(row)
        return [_shadow(place, gpu, rows) for (place, gpu), rows in seen.items()]


def _ordered(
    connection: Connection, row: DictRow, person: int, place: str, by: str, now: datetime, *, cold: bool = False
) -> int:
    """The number of this run's shadow."""
    told = {**row, "person": person, "place": place, "by": by, "now": now, "seed": secrets.token_hex(16), "cold": cold}
    made = connection.execute(_ORDER_SHADOW.encode(), told).fetchone()
    assert made is not None
    return int(made["run_id"])


def _shadow(place: str, gpu: str, rows: Sequence[dict[str, Any]]) -> ShadowView:
    still = [row for row in rows if row["state"] in ("queued", "launching", "running")]
    pairs = [
        Pair(**{name: value for name, value in row.items() if name not in ("state", "verdict")})
        for row in rows
        if row["verdict"] == "passed" and all(row[name] is not None for name in Pair.__dataclass_fields__)
    ]
    return ShadowView(
        place=place, gpu=gpu, open=len(still), without_score=len(rows) - len(still) - len(pairs), drift=drift(pairs)
    )
