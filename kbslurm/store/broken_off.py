"""Ranked runs that broke off: which did, and how many of somebody's last measurements."""

from __future__ import annotations

from datetime import datetime, timedelta

from kbslurm.domain import broken_off
from kbslurm.domain.drift import SHADOW
from kbslurm.domain.finals import FINAL
from kbslurm.domain.measure import CALIBRATION
from kbslurm.store.rows import Rows
from kbslurm.store.views import Attention

LOOKED_BACK = timedelta(days=7)
NAMED = 10

_OF_THE_SERVICE = f"('{CALIBRATION}', '{FINAL}', '{SHADOW}')"

# Whether the run `run`, which ends without a report, was being ranked, as far as its last attempt told.
IS_BEING_RANKED = f"""EXISTS (
        SELECT 1 FROM submission own JOIN attempt last ON last.run_id = run.id AND last.number = run.attempts
        WHERE own.id = run.submission_id AND own.mode = 'leaderboard' AND own.via NOT IN {_OF_THE_SERVICE}
            AND last.started_at IS NOT NULL
            AND coalesce(last.telemetry -> 'progress' ->> 'phase', 'ranked') IN ('ranked', 'hidden'))"""

# Whether a run that ends as cancelled was cancelled by its author while it was being ranked. A second measurement
# always is: the first one is known.
CANCELLED_BY_ITS_AUTHOR = f"(run.cancel_by IS NOT DISTINCT FROM run.person_id AND (run.second OR {IS_BEING_RANKED}))"

# The last measurements on the board `b` of the side that submitted `s`, by the kind of the run `{run}`.
LAST_MEASURED = f"""SELECT m.id, m.submission_id, m.broke_off, m.ended_at, m.second
    FROM submission t JOIN run m ON m.submission_id = t.id AND m.problem_version_id = {{run}}.problem_version_id
        AND m.gpu = {{run}}.gpu AND m.ended_at IS NOT NULL AND (m.rejudging_id = 0 OR m.counts)
    WHERE t.board_id = s.board_id AND t.mode = 'leaderboard' AND t.via NOT IN {_OF_THE_SERVICE}
        AND t.person_id = ANY(ARRAY(SELECT s.person_id UNION SELECT mate.person_id FROM submission mate
            WHERE b.teams AND mate.board_id = s.board_id AND mate.team = s.team))
        AND t.team IS NOT DISTINCT FROM CASE WHEN b.teams THEN s.team ELSE t.team END
        AND (m.broke_off OR EXISTS (SELECT 1 FROM verdict passed
            WHERE passed.run_id = m.id AND passed.name = 'passed'))
    ORDER BY m.ended_at DESC, m.id DESC LIMIT {broken_off.LAST}"""

_SIDES = f"""
WITH lately AS (
    SELECT max(r.id) AS run_id
    FROM run r JOIN submission s ON s.id = r.submission_id
    JOIN leaderboard b ON b.id = s.board_id AND b.deleted_at IS NULL AND b.problem_version_id = r.problem_version_id
    WHERE r.broke_off AND r.ended_at > %(since)s AND (r.rejudging_id = 0 OR r.counts)
    GROUP BY s.board_id, r.gpu, r.problem_version_id, CASE WHEN b.teams THEN s.team END,
        CASE WHEN b.teams AND s.team IS NOT NULL THEN 0 ELSE s.person_id END
    HAVING count(*) >= {broken_off.FEWEST}
)
SELECT b.name AS board, r.gpu, p.id AS person, CASE WHEN b.teams THEN coalesce(s.team, p.name) ELSE p.name END AS who,
    found.broke_off, found.many, found.at, found.submissions
FROM lately JOIN run r ON r.id = lately.run_id JOIN submission s ON s.id = r.submission_id
JOIN leaderboard b ON b.id = s.board_id JOIN person p ON p.id = s.person_id
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE l.broke_off)::int AS broke_off, count(*)::int AS many,
        max(l.ended_at) FILTER (WHERE l.broke_off) AS at,
        array_agg(DISTINCT l.submission_id ORDER BY l.submission_id) FILTER (WHERE l.broke_off) AS submissions
    FROM ({LAST_MEASURED.format(run="r")}) l
) found
"""


class BrokenOff(Rows):
    """Whose ranked runs break off."""

    def attention(self, now: datetime) -> list[Attention]:
        """People and teams whose last ranked measurements broke off more often than by chance, some of them lately."""
        return [
            Attention(
                kind="broken_off",
                subject=f"person:{row['person']}",
                text=broken_off.attention(
                    row["who"], row["board"], row["gpu"], row["broke_off"], row["many"], row["submissions"][-NAMED:]
                ),
                since=row["at"],
            )
            for row in self._all(_SIDES, {"since": now - LOOKED_BACK})
            if broken_off.beyond_chance(row["broke_off"], row["many"])
        ]
