"""Second measurements: one at a time per person, or per team where those count together, skipping those no longer
needed. Side by side, the best of them would count."""

from __future__ import annotations

from datetime import datetime

from kbslurm.domain.board import LEAST_DIFFERENCE
from kbslurm.store.connect import Connection
from kbslurm.store.final_scores import NEWEST_SCORES, SIDE, UNBOUND, bound

TEND_LOCK = 4_927_307
# For whom the submission `{s}` counts on the board `b`.
_SIDE = "CASE WHEN b.teams AND {s}.team IS NOT NULL THEN 'team ' || {s}.team ELSE 'person ' || {s}.person_id END"
IS_HELD = "run.held AND run.state = 'queued'"

# The score that counts on the board `b` for whoever submitted `s`: the person or, where teams count together, the team
# that it was for. The best, or the latest if that one counts.
_STANDING_SCORE = f"""SELECT coalesce(fs.score_s, v.score_s) AS score_s, coalesce(fs.low_s, v.low_s) AS low_s,
        coalesce(fs.high_s, v.high_s) AS high_s
    FROM submission t
    JOIN run tr ON tr.submission_id = t.id AND tr.problem_version_id = {{run}}.problem_version_id
        AND tr.gpu = {{run}}.gpu AND tr.counts AND tr.may_rank
    JOIN verdict v ON v.run_id = tr.id AND v.ranked
    LEFT JOIN ({NEWEST_SCORES}) fs ON fs.run_id = tr.id{{bound}}
    WHERE t.board_id = s.board_id AND {{which}}
        AND t.person_id = ANY(ARRAY(SELECT s.person_id UNION SELECT m.person_id FROM submission m
            WHERE b.teams AND m.board_id = s.board_id AND m.team = s.team))
        AND t.team IS NOT DISTINCT FROM CASE WHEN b.teams THEN s.team ELSE t.team END
    ORDER BY CASE WHEN b.ranking = 'last' THEN -t.id END, coalesce(fs.score_s, v.score_s) LIMIT 1"""
_BOUND = bound(side=SIDE.format(s="t"), run="tr", board="s.board_id", until=False)


def standing_score(run: str) -> str:
    """The score that counts there on the GPU type and version of this run."""
    which = f"t.removed_at IS NULL AND {UNBOUND.format(submission='t.id')}"
    return _STANDING_SCORE.format(run=run, which=which, bound=f"\n    {_BOUND}")


def former_score(run: str, which: str) -> str:
    """The best of those submissions `t` there for which this holds."""
    return _STANDING_SCORE.format(run=run, which=which, bound="")


# Waiting second measurements: (the run, its first one's score, and whether another of the same side's that was
# confirmed meanwhile makes it unnecessary). They are due once no other one of that side's is being measured.
_WAITING_SECONDS = f"""
WITH waiting AS (
    SELECT h.id, h.submission_id, h.gpu, h.problem_version_id, {_SIDE.format(s="s")} AS side, s.board_id,
        f.id AS first_id, v.score_s,
        b.ranking, CASE WHEN b.ranking = 'last' THEN held.score_s <= v.score_s
            ELSE ln(held.score_s / v.score_s) <= greatest({LEAST_DIFFERENCE},
                sqrt((ln(held.high_s / nullif(held.low_s, 0)) ^ 2 + ln(v.high_s / nullif(v.low_s, 0)) ^ 2) / 4))
            END IS TRUE AS needless
    FROM run h JOIN submission s ON s.id = h.submission_id JOIN leaderboard b ON b.id = s.board_id
    JOIN run f ON f.submission_id = h.submission_id AND f.gpu = h.gpu AND f.problem_version_id = h.problem_version_id
        AND f.rejudging_id = 0 AND NOT f.second
    JOIN verdict v ON v.run_id = f.id
    LEFT JOIN LATERAL (
        {standing_score("h")}
    ) held ON true
    WHERE h.held AND h.second AND h.state = 'queued' AND NOT EXISTS (
        SELECT 1 FROM run o JOIN submission os ON os.id = o.submission_id
        WHERE o.second AND NOT o.held AND o.ended_at IS NULL AND o.gpu = h.gpu
            AND {_SIDE.format(s="os")} = {_SIDE.format(s="s")}
            AND o.problem_version_id = h.problem_version_id AND os.board_id = s.board_id)
)"""  # fmt: skip

# What would no longer improve anything isn't measured again. Where the latest counts, its first measurement counts.
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

# A single statement reads who is being measured and the current scores, so that nothing can change in between.
_RELEASE_SECONDS = f"""{_WAITING_SECONDS}, best AS (
    SELECT DISTINCT ON (side, board_id, gpu, problem_version_id) id FROM waiting WHERE NOT needless
    ORDER BY side, board_id, gpu, problem_version_id, score_s, id
)
UPDATE run SET held = false FROM best WHERE run.id = best.id AND {IS_HELD}
"""


def wait_for_turn(connection: Connection) -> None:
    """Releases are serialised, so that each sees what the previous one did."""
    connection.execute(b"SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": TEND_LOCK})


def release_seconds(connection: Connection, now: datetime) -> int:
    """Drop second measurements that are no longer needed and release the best of the others, one per side."""
    dropped = connection.execute(_DROP_SECONDS.encode(), {"now": now}).fetchone()
    gone = 0 if dropped is None else int(dropped["n"])
    return gone + connection.execute(_RELEASE_SECONDS.encode()).rowcount
