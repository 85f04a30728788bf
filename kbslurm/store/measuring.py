"""Calibrations, second measurements and the baselines' charts, in rows.

A run that waits for something of the house is `held`: nobody claims it. What it waits for is a predicate over rows,
which `tend` looks at again and again: no message and no memory is load-bearing.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from kbslurm.domain.board import LEAST_DIFFERENCE, Measured
from kbslurm.domain.manifest import time_limit_s
from kbslurm.domain.measure import (
    AGAIN_AFTER_S,
    CALIBRATION,
    CHART_LENGTH,
    CHART_PER_PERSON,
    Calibration,
    Yardstick,
)
from kbslurm.domain.run import AttemptId, OpenAttempt, PersonId
from kbslurm.errors import NotFound
from kbslurm.store.connect import Connection
from kbslurm.store.register import _tell
from kbslurm.store.rejudging import RejudgingDesk
from kbslurm.store.views import Board

TEND_LOCK = 4_927_307
HOUSE = "house"

# Somebody's score that counts on a board: the best, or the latest where that one counts.
_STANDS_BEST = """SELECT coalesce(fs.score_s, v.score_s) AS score_s, coalesce(fs.low_s, v.low_s) AS low_s,
        coalesce(fs.high_s, v.high_s) AS high_s
    FROM submission t
    JOIN run tr ON tr.submission_id = t.id AND tr.problem_version_id = {version} AND tr.gpu = {gpu}
        AND tr.counts AND tr.may_rank
    JOIN verdict v ON v.run_id = tr.id AND v.ranked
    LEFT JOIN final_score fs ON fs.run_id = tr.id
    WHERE t.board_id = {board} AND t.person_id = {person} AND {which}
    ORDER BY CASE WHEN {ranking} = 'last' THEN -t.id END, coalesce(fs.score_s, v.score_s) LIMIT 1"""
# By its own author: what staff take off a board is no measure of anything.
_TAKEN_BACK = """t.removed_at IS NOT NULL AND (
        SELECT e.data ->> 'person' FROM event e
        WHERE e.subject = 'submission:' || t.id AND e.kind = 'submission.removed' ORDER BY e.id LIMIT 1
    ) = t.person_id::text"""
_YARDSTICK = f"""
SELECT s.via = %(via)s AS calibrates, c.b_ref_s, r.problem_version_id AS version,
    b.confirm AND r.counts AND r.rejudging_id = 0 AND NOT r.second AND s.removed_at IS NULL AS may_confirm,
    b.ranking = 'last' AS latest_counts, held.score_s AS standing_s, held.low_s, held.high_s,
    gone.score_s AS gone_s, gone.low_s AS gone_low_s, gone.high_s AS gone_high_s
FROM attempt a JOIN run r ON r.id = a.run_id JOIN submission s ON s.id = r.submission_id
JOIN leaderboard b ON b.id = s.board_id
LEFT JOIN calibration c ON c.board_id = s.board_id AND c.problem_version_id = r.problem_version_id AND c.gpu = r.gpu
LEFT JOIN LATERAL (
    {_STANDS_BEST.format(version="r.problem_version_id", gpu="r.gpu", board="s.board_id", person="s.person_id",
                         which="t.removed_at IS NULL", ranking="b.ranking")}
) held ON true
LEFT JOIN LATERAL (
    {_STANDS_BEST.format(version="r.problem_version_id", gpu="r.gpu", board="s.board_id", person="s.person_id",
                         which=_TAKEN_BACK, ranking="b.ranking")}
) gone ON b.confirm AND b.ranking <> 'last' AND r.rejudging_id = 0
WHERE a.id = %(attempt)s
"""  # fmt: skip
_CHART = f"""
SELECT level FROM (
    SELECT level, id, row_number() OVER (PARTITION BY person_id ORDER BY id DESC) AS nth FROM (
        SELECT p.level, p.id, p.person_id FROM baseline_point p
        WHERE p.backend = %(backend)s AND p.node = %(node)s AND p.gpu = %(gpu)s AND p.problem_version_id = %(version)s
        ORDER BY p.id DESC LIMIT {10 * CHART_LENGTH}
    ) lately
) each WHERE nth <= {CHART_PER_PERSON} ORDER BY id DESC LIMIT {CHART_LENGTH}
"""
_POINT = """
INSERT INTO baseline_point (attempt_id, person_id, backend, node, gpu, problem_version_id, level, inside, at)
SELECT a.id, r.person_id, a.backend, %(node)s, r.gpu, r.problem_version_id, %(level)s, %(inside)s, %(now)s
FROM attempt a JOIN run r ON r.id = a.run_id WHERE a.id = %(attempt)s
ON CONFLICT (attempt_id) DO NOTHING
"""
_HELD = "run.held AND run.state = 'queued'"
_RELEASE_CALIBRATED = f"""
UPDATE run SET held = false FROM submission s
WHERE s.id = run.submission_id AND {_HELD} AND NOT run.second AND EXISTS (
    SELECT 1 FROM calibration c
    WHERE c.board_id = s.board_id AND c.problem_version_id = run.problem_version_id AND c.gpu = run.gpu)
"""
# Second measurements that wait: (the run, its first one's score, and whether another of the same person's was confirmed
# meanwhile that makes it needless). None of them waits any more once no other of that person's is being measured.
_WAITING_SECONDS = f"""
WITH waiting AS (
    SELECT h.id, h.submission_id, h.gpu, h.problem_version_id, h.person_id, s.board_id, f.id AS first_id, v.score_s,
        b.ranking, CASE WHEN b.ranking = 'last' THEN held.score_s <= v.score_s
            ELSE ln(held.score_s / v.score_s) <= greatest({LEAST_DIFFERENCE},
                sqrt((ln(held.high_s / nullif(held.low_s, 0)) ^ 2 + ln(v.high_s / nullif(v.low_s, 0)) ^ 2) / 4))
            END IS TRUE AS needless
    FROM run h JOIN submission s ON s.id = h.submission_id JOIN leaderboard b ON b.id = s.board_id
    JOIN run f ON f.submission_id = h.submission_id AND f.gpu = h.gpu AND f.problem_version_id = h.problem_version_id
        AND f.rejudging_id = 0 AND NOT f.second
    JOIN verdict v ON v.run_id = f.id
    LEFT JOIN LATERAL (
        {_STANDS_BEST.format(version="h.problem_version_id", gpu="h.gpu", board="s.board_id", person="h.person_id",
                             which="t.removed_at IS NULL", ranking="b.ranking")}
    ) held ON true
    WHERE h.held AND h.second AND h.state = 'queued' AND NOT EXISTS (
        SELECT 1 FROM run o JOIN submission os ON os.id = o.submission_id
        WHERE o.second AND NOT o.held AND o.ended_at IS NULL AND o.person_id = h.person_id AND o.gpu = h.gpu
            AND o.problem_version_id = h.problem_version_id AND os.board_id = s.board_id)
)"""  # fmt: skip
# What would improve nothing any more isn't measured again. Where the latest counts its first measurement does, then.
_DROP_SECONDS = f"""{_WAITING_SECONDS}, gone AS (
    UPDATE run SET state = 'cancelled', cancel_at = %(now)s, ended_at = %(now)s, counts = false, held = false,
        reason = 'another of the same person was confirmed as fast meanwhile'
    FROM waiting w WHERE w.needless AND run.id = w.id AND run.state = 'queued'
    RETURNING run.id, run.submission_id, run.gpu, run.person_id, w.first_id, w.ranking
), back AS (
    UPDATE run SET counts = true, may_rank = may_rank AND gone.ranking = 'last' FROM gone WHERE run.id = gone.first_id
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'run.cancelled', 'run:' || id, jsonb_build_object('submission', submission_id, 'gpu', gpu,
        'person', person_id, 'by', NULL::bigint), %(now)s FROM gone
)
SELECT count(*) AS n FROM gone
"""
# One statement sees who is being measured and what stands: what ends between it and the one before it changes neither.
_RELEASE_SECONDS = f"""{_WAITING_SECONDS}, best AS (
    SELECT DISTINCT ON (person_id, board_id, gpu, problem_version_id) id FROM waiting WHERE NOT needless
    ORDER BY person_id, board_id, gpu, problem_version_id, score_s, id
)
UPDATE run SET held = false FROM best WHERE run.id = best.id AND {_HELD}
"""
# Every live board's GPU types, and whatever else ranked runs wait for, that nobody has measured or is measuring.
_DUE = f"""
SELECT due.board_id, due.version, due.gpu FROM (
    SELECT b.id AS board_id, b.problem_version_id AS version, unnest(b.gpus) AS gpu FROM leaderboard b
    WHERE b.deleted_at IS NULL AND b.closed_at IS NULL AND (b.deadline_at IS NULL OR b.deadline_at > %(now)s)
    UNION
    SELECT s.board_id, run.problem_version_id, run.gpu FROM run JOIN submission s ON s.id = run.submission_id
    WHERE {_HELD} AND NOT run.second
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


class MeasuringDesk(RejudgingDesk):
    """What makes a ranked score: reference times, second measurements, charts."""

    def yardstick(self, attempt: OpenAttempt, node: str) -> Yardstick:
        """What the score of this attempt is made and judged by."""
        found = self._one(_YARDSTICK, {"attempt": attempt.id, "via": CALIBRATION})
        if found is None:
            raise NotFound("attempt", str(attempt.id))
        told = {"backend": attempt.backend, "node": node, "gpu": attempt.gpu, "version": found["version"]}
        return Yardstick(
            calibrates=found["calibrates"],
            may_confirm=found["may_confirm"],
            b_ref_s=None if found["b_ref_s"] is None else tuple(found["b_ref_s"]),
            latest_counts=found["latest_counts"],
            standing=None if found["standing_s"] is None else _measured(found["standing_s"], found),
            taken_back=None
            if found["gone_s"] is None
            else _measured(found["gone_s"], {"low_s": found["gone_low_s"], "high_s": found["gone_high_s"]}),
            chart=tuple(row["level"] for row in self._all(_CHART, told)) if node else (),
        )

    def note_baseline(self, attempt: AttemptId, node: str, level: float, now: datetime, *, inside: bool) -> None:
        """Keep what the baseline took in this attempt, once."""
        self._do(_POINT, {"attempt": attempt, "node": node, "level": level, "inside": inside, "now": now})

    def tend(self, now: datetime) -> int:
        """Order what must be calibrated, and let go of runs that waited for something that is there: how many."""
        told: dict[str, Any] = {"now": now, "again": now - timedelta(seconds=AGAIN_AFTER_S)}
        found = self._one(f"SELECT EXISTS ({_DUE}) AS due, EXISTS (SELECT 1 FROM run WHERE {_HELD}) AS held", told)
        if found is None or not (found["due"] or found["held"]):
            return 0
        done = 0
        with self._pool.transaction() as connection:
            self._line_up(connection)
            for due in connection.execute(_DUE.encode(), told).fetchall():
                self._order_calibration(connection, due, now)
                done += 1
            done += connection.execute(_RELEASE_CALIBRATED.encode()).rowcount
            done += self._release_seconds(connection, now)
        return done

    @staticmethod
    def _line_up(connection: Connection) -> None:
        """Whoever lets runs go does so alone, and sees what the one before did."""
        connection.execute(b"SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": TEND_LOCK})

    @staticmethod
    def _release_seconds(connection: Connection, now: datetime) -> int:
        """Drop second measurements that became needless and let the best of the others go, one for each person."""
        dropped = connection.execute(_DROP_SECONDS.encode(), {"now": now}).fetchone()
        gone = 0 if dropped is None else int(dropped["n"])
        return gone + connection.execute(_RELEASE_SECONDS.encode()).rowcount

    def calibrations(self, board: Board) -> Mapping[str, Calibration]:
        """How the live version stands on each of the board's GPU types; empty where the problem has no baseline."""
        if board.problem.baseline is None:
            return {}
        told = {"gpus": list(board.gpus), "board": board.id, "version": board.problem_version_id}
        return {row["gpu"]: _stands(row) for row in self._all(_STANDS, told)}

    def _order_calibration(self, connection: Connection, due: DictRow, now: datetime) -> None:
        version = int(due["version"])
        problem = self.problem_of_version(version)
        assert problem.baseline is not None
        told = {
            "person": self._house(connection, now),
            "board": due["board_id"],
            "version": version,
            "gpu": due["gpu"],
            "source": problem.baseline,
            "sha256": hashlib.sha256(problem.baseline.encode()).hexdigest(),
            "cost_s": time_limit_s(problem.limits, "leaderboard"),
            "seed": secrets.token_hex(16),
            "now": now,
        }
        connection.execute(_ORDER.encode(), told)

    def house(self, *, now: datetime) -> PersonId:
        """Who the house's own submissions belong to."""
        with self._pool.transaction() as connection:
            return self._house(connection, now)

    def _house(self, connection: Connection, now: datetime) -> PersonId:
        """Who the house's own runs belong to: a person whom nobody can sign on as, made when first needed."""
        found = connection.execute(b"SELECT value FROM setting WHERE key = %(key)s", {"key": HOUSE}).fetchone()
        if found is not None:
            return PersonId(found["value"])
        made = connection.execute(
            b"INSERT INTO person (name, role, created_at) VALUES (%(name)s, 'staff', %(now)s)"
            b" ON CONFLICT (lower(name)) DO NOTHING RETURNING id",
            {"name": HOUSE, "now": now},
        ).fetchone()
        if made is None:  # somebody is called so: then it is called otherwise
            made = connection.execute(
                b"INSERT INTO person (name, role, created_at) VALUES (%(name)s, 'staff', %(now)s) RETURNING id",
                {"name": f"{HOUSE} {secrets.token_hex(4)}", "now": now},
            ).fetchone()
        assert made is not None
        connection.execute(
            b"INSERT INTO setting (key, value) VALUES (%(key)s, %(value)s)", {"key": HOUSE, "value": Jsonb(made["id"])}
        )
        _tell(connection, "person.house", f"person:{made['id']}", {}, now)
        return PersonId(made["id"])


def _measured(score_s: float, row: Mapping[str, Any]) -> Measured:
    return Measured(score_s=score_s, low_s=row["low_s"] or score_s, high_s=row["high_s"] or score_s)


def _stands(row: DictRow) -> Calibration:
    if row["b_ref_s"] is not None:
        return Calibration(gpu=row["gpu"], state="calibrated", b_ref_s=tuple(row["b_ref_s"]), at=row["at"])
    if row["ended_at"] is not None:
        return Calibration(gpu=row["gpu"], state="failed", at=row["ended_at"], reason=row["reason"])
    return Calibration(gpu=row["gpu"], state="calibrating")
