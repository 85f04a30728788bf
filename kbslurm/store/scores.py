"""Verdicts, the data for them, and the baselines' charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from kbslurm.domain import broken_off
from kbslurm.domain.board import Measured
from kbslurm.domain.broken_off import Again, Past, Repeated
from kbslurm.domain.measure import CALIBRATION, CHART_LENGTH, CHART_PER_PERSON, Yardstick
from kbslurm.domain.run import AttemptId, Ending, OpenAttempt, RunId
from kbslurm.domain.verdict import Verdict
from kbslurm.errors import NotFound
from kbslurm.store.attempt_rows import LIVE, fence
from kbslurm.store.broken_off import IS_BEING_RANKED, LAST_MEASURED
from kbslurm.store.jsonb import as_jsonb, clean
from kbslurm.store.rows import Rows
from kbslurm.store.second_measurements import former_score, release_seconds, standing_score, wait_for_turn
from kbslurm.store.taken_back import taken_back

_YARDSTICK = f"""
SELECT s.via = %(via)s AS calibrates, c.b_ref_s, r.problem_version_id AS version,
    r.counts AND r.rejudging_id = 0 AND NOT r.second AND s.removed_at IS NULL AS may_repeat, b.confirm,
    b.ranking = 'last' AS latest_counts, held.score_s AS standing_s, held.low_s, held.high_s,
    gone.score_s AS gone_s, gone.low_s AS gone_low_s, gone.high_s AS gone_high_s
FROM attempt a JOIN run r ON r.id = a.run_id JOIN submission s ON s.id = r.submission_id
JOIN leaderboard b ON b.id = s.board_id
LEFT JOIN calibration c ON c.board_id = s.board_id AND c.problem_version_id = r.problem_version_id AND c.gpu = r.gpu
LEFT JOIN LATERAL (
    {standing_score("r")}
) held ON true
LEFT JOIN LATERAL (
    {former_score("r", taken_back("t"))}
) gone ON b.confirm AND b.ranking <> 'last' AND r.rejudging_id = 0
WHERE a.id = %(attempt)s
"""  # fmt: skip

# By one harness: another may take a baseline's time otherwise, on every node at once.
_CHART = f"""
SELECT level FROM (
    SELECT level, id, row_number() OVER (PARTITION BY person_id ORDER BY id DESC) AS nth FROM (
        SELECT p.level, p.id, p.person_id FROM baseline_point p
        WHERE p.backend = %(backend)s AND p.node = %(node)s AND p.gpu = %(gpu)s AND p.problem_version_id = %(version)s
            AND p.harness = %(harness)s
        ORDER BY p.id DESC LIMIT {10 * CHART_LENGTH}
    ) lately
) each WHERE nth <= {CHART_PER_PERSON} ORDER BY id DESC LIMIT {CHART_LENGTH}
"""

_POINT = """
INSERT INTO baseline_point (attempt_id, person_id, backend, node, gpu, problem_version_id, level, inside, at,
    harness)
SELECT a.id, r.person_id, a.backend, %(node)s, r.gpu, r.problem_version_id, %(level)s, %(inside)s, %(now)s, %(harness)s
FROM attempt a JOIN run r ON r.id = a.run_id WHERE a.id = %(attempt)s
ON CONFLICT (attempt_id) DO NOTHING
"""

# For the second and later measurements of a run on a board that confirms improvements.
_TIMED = """{v}.score_s, coalesce({v}.low_s, {v}.score_s) AS low_s, coalesce({v}.high_s, {v}.score_s) AS high_s"""
_AGAIN = f"""
WITH last AS MATERIALIZED (
    SELECT l.* FROM attempt a JOIN run r ON r.id = a.run_id JOIN submission s ON s.id = r.submission_id
    JOIN leaderboard b ON b.id = s.board_id CROSS JOIN LATERAL ({LAST_MEASURED.format(run="r")}) l
    WHERE a.id = %(attempt)s
)
SELECT (SELECT count(*) FROM last WHERE last.broke_off)::int AS broke_off,
    (SELECT json_agg(p) FROM (
        SELECT e.id AS run, {_TIMED.format(v="ev")} FROM run e JOIN verdict ev ON ev.run_id = e.id AND ev.ranked
        WHERE e.submission_id = r.submission_id AND e.gpu = r.gpu AND e.problem_version_id = r.problem_version_id
            AND e.rejudging_id = r.rejudging_id AND e.measurement < r.measurement ORDER BY e.measurement
    ) p) AS past,
    (SELECT json_agg(o) FROM (
        SELECT {_TIMED.format(v="mv")}, fv.score_s AS first_s, coalesce(fv.low_s, fv.score_s) AS first_low_s,
            coalesce(fv.high_s, fv.score_s) AS first_high_s
        FROM last JOIN verdict mv ON mv.run_id = last.id AND mv.ranked
        JOIN run m ON m.id = last.id
        JOIN run f ON f.submission_id = m.submission_id AND f.gpu = m.gpu AND f.rejudging_id = m.rejudging_id
            AND f.problem_version_id = m.problem_version_id AND f.measurement = 1
        JOIN verdict fv ON fv.run_id = f.id AND fv.ranked
        WHERE last.second AND last.submission_id <> r.submission_id
    ) o) AS others
FROM attempt a JOIN run r ON r.id = a.run_id JOIN submission s ON s.id = r.submission_id
JOIN leaderboard b ON b.id = s.board_id
WHERE a.id = %(attempt)s AND r.second AND r.counts AND r.rejudging_id = 0 AND s.removed_at IS NULL AND b.confirm
"""

# Law 1. The UPDATE is the gate: if it returns no row, the other parts have no input. With a seed for a second
# measurement, that run is queued here and counts instead of this one; it is held until its turn, since a person's are
# measured one at a time (second_measurements.py). Or an earlier measurement counts `instead`. With reference times, a
# calibration is stored and the runs that waited for it are released. A deleted submission's profile files aren't
# stored: deleting one cancels it first, under the run's lock.
SCORE = f"""
WITH moved AS (
    UPDATE run SET state = 'scored', ended_at = %(now)s, reason = %(reason)s,
        counts = counts AND %(second_seed)s::text IS NULL AND %(instead)s::bigint IS NULL,
        broke_off = coalesce(%(broke_off)s::boolean, {IS_BEING_RANKED}) OR (second AND %(failed)s)
    WHERE id = %(run)s AND attempts = %(number)s AND {LIVE}
    RETURNING id, submission_id, gpu, person_id, counts, problem_version_id, fair_at, cost_s, by_staff, cancel_at,
        measurement, broke_off
), slower AS (
    UPDATE run SET counts = true FROM moved WHERE run.id = %(instead)s
), closed AS (
    UPDATE attempt SET state = CASE WHEN %(ending)s = 'reported' THEN 'reported' ELSE 'dead' END, ending = %(ending)s,
        ended_at = coalesce(attempt.ended_at, %(now)s), telemetry = %(telemetry)s, reason = %(reason)s
    FROM moved WHERE attempt.id = %(attempt)s AND attempt.run_id = moved.id
    RETURNING attempt.id, attempt.number, attempt.backend, attempt.ranks
), judged AS (
    INSERT INTO verdict (run_id, attempt_id, name, reason, score_s, low_s, high_s, isolation, ranked, detail, at)
    SELECT moved.id, closed.id, %(verdict)s, %(reason)s, %(score_s)s, %(low_s)s, %(high_s)s, %(isolation)s,
        %(ranked)s AND closed.ranks, %(detail)s, %(now)s
    FROM moved, closed
    RETURNING run_id
), archived AS (
    INSERT INTO raw_samples (attempt_id, data) SELECT closed.id, %(samples)s FROM closed
    WHERE %(samples)s::bytea IS NOT NULL
), calibrated AS (
    INSERT INTO calibration (board_id, problem_version_id, gpu, run_id, b_ref_s, at)
    SELECT s.board_id, moved.problem_version_id, moved.gpu, moved.id, %(b_ref_s)s::float8[], %(now)s
    FROM moved JOIN submission s ON s.id = moved.submission_id WHERE %(b_ref_s)s::float8[] IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING board_id, problem_version_id, gpu
), released AS (
    UPDATE run SET held = false FROM calibrated c, submission s
    WHERE run.held AND NOT run.second AND run.state = 'queued' AND run.gpu = c.gpu
        AND run.problem_version_id = c.problem_version_id AND s.id = run.submission_id AND s.board_id = c.board_id
), seconded AS (
    INSERT INTO run (submission_id, problem_version_id, person_id, gpu, fair_at, queued_at, cost_s, by_staff,
        secret_seed, second, measurement, held)
    SELECT moved.submission_id, moved.problem_version_id, moved.person_id, moved.gpu, moved.fair_at, %(now)s,
        moved.cost_s, moved.by_staff, %(second_seed)s, true, moved.measurement + 1, true
    FROM moved WHERE %(second_seed)s::text IS NOT NULL
    RETURNING id, submission_id, gpu
), drawn AS (
    INSERT INTO artifact (attempt_id, name, data, at) SELECT closed.id, file.name, file.data, %(now)s
    FROM closed, moved, unnest(%(names)s::text[], %(files)s::bytea[]) AS file(name, data)
    WHERE moved.cancel_at IS NULL
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'run.scored', 'run:' || moved.id, jsonb_build_object('submission', moved.submission_id, 'gpu', moved.gpu,
        'person', moved.person_id, 'attempt', closed.number, 'backend', closed.backend, 'verdict', %(verdict)s::text,
        'score_s', %(score_s)s::float8, 'ranked', %(ranked)s::boolean AND closed.ranks, 'counts', moved.counts)
            || CASE WHEN moved.broke_off THEN '{{"broke_off": true}}' ELSE '{{}}' END::jsonb,
        %(now)s
    FROM moved, closed
    UNION ALL
    SELECT 'run.queued', 'run:' || id, jsonb_build_object('submission', submission_id, 'gpu', gpu, 'second', true),
        %(now)s FROM seconded
    UNION ALL
    SELECT 'board.calibrated', 'board:' || board_id, jsonb_build_object('version', problem_version_id, 'gpu', gpu),
        %(now)s FROM calibrated
)
SELECT run_id FROM judged
"""


class Scores(Rows):
    """ports.Scores: one verdict per run, ever."""

    def record(
        self,
        attempt: OpenAttempt,
        verdict: Verdict,
        ending: Ending,
        now: datetime,
        *,
        telemetry: Mapping[str, Any],
        samples: bytes | None = None,
        second_seed: str | None = None,
        b_ref_s: Sequence[float] | None = None,
        artifacts: Mapping[str, bytes] | None = None,
        broke_off: bool | None = False,
        instead: RunId | None = None,
    ) -> bool:
        files = artifacts or {}
        told: dict[str, Any] = {
            "verdict": verdict.name,
            "reason": clean(verdict.reason),
            "score_s": verdict.score_s,
            "low_s": verdict.low_s,
            "high_s": verdict.high_s,
            "isolation": verdict.isolation,
            "ranked": verdict.ranked,
            "detail": None if verdict.detail is None else as_jsonb(verdict.detail),
            "ending": ending.value,
            "telemetry": as_jsonb(telemetry),
            "samples": samples,
            "second_seed": second_seed,
            "broke_off": broke_off,
            "failed": broken_off.failed(verdict),
            "instead": instead,
            "b_ref_s": None if b_ref_s is None else list(b_ref_s),
            "names": list(files),
            "files": list(files.values()),
        }
        if second_seed is None:
            return self._fenced(SCORE, attempt, now, **told)
        with self._pool.transaction() as connection:
            wait_for_turn(connection)
            if connection.execute(SCORE.encode(), {**fence(attempt), "now": now, **told}).fetchone() is None:
                return False
            release_seconds(connection, now)
        return True

    def yardstick(self, attempt: OpenAttempt, node: str, harness: str) -> Yardstick:
        """The data for scoring this attempt. `harness`: the digest of the one that measured it."""
        found = self._one(_YARDSTICK, {"attempt": attempt.id, "via": CALIBRATION})
        if found is None:
            raise NotFound("attempt", str(attempt.id))
        told = {"backend": attempt.backend, "node": node, "gpu": attempt.gpu, "version": found["version"]}
        told["harness"] = harness
        return Yardstick(
            calibrates=found["calibrates"],
            may_repeat=found["may_repeat"],
            may_confirm=found["may_repeat"] and found["confirm"],
            b_ref_s=None if found["b_ref_s"] is None else tuple(found["b_ref_s"]),
            latest_counts=found["latest_counts"],
            previous=None if found["standing_s"] is None else _measured(found["standing_s"], found),
            taken_back=None
            if found["gone_s"] is None
            else _measured(found["gone_s"], {"low_s": found["gone_low_s"], "high_s": found["gone_high_s"]}),
            chart=tuple(row["level"] for row in self._all(_CHART, told)) if node else (),
        )

    def again(self, attempt: OpenAttempt) -> Again | None:
        """The data for scoring a second or later measurement; None if this isn't one that can be followed by others."""
        found = self._one(_AGAIN, {"attempt": attempt.id})
        if found is None or not found["past"]:
            return None
        first, *past = (Past(**row) for row in found["past"])
        others = tuple(map(_repeated, found["others"] or ()))
        return Again(first=first, past=tuple(past), broke_off=found["broke_off"], others=others)

    def note_baseline(
        self, attempt: AttemptId, node: str, level: float, now: datetime, *, harness: str, inside: bool
    ) -> None:
        """Store the baseline's time in this attempt, by this harness, once."""
        told = {"attempt": attempt, "node": node, "level": level, "inside": inside, "now": now, "harness": harness}
        self._do(_POINT, told)


def _repeated(row: Mapping[str, Any]) -> Repeated:
    first = Measured(score_s=row["first_s"], low_s=row["first_low_s"], high_s=row["first_high_s"])
    return Repeated(first=first, later=_measured(row["score_s"], row))


def _measured(score_s: float, row: Mapping[str, Any]) -> Measured:
    return Measured(score_s=score_s, low_s=row["low_s"] or score_s, high_s=row["high_s"] or score_s)
