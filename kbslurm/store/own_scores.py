"""Somebody's own ranked scores over time, and the raw samples of their submissions."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from kbslurm.domain import access
from kbslurm.domain.run import PersonId, SubmissionId
from kbslurm.store.deadlines import in_time
from kbslurm.store.rows import Rows
from kbslurm_eval.shared.wire import CallTimes, LaunchSamples

_SCORED = f"""
SELECT b.id AS board_id, b.name AS board, b.zone, r.gpu, s.id AS submission_id, s.accepted_at AS at, v.score_s,
    coalesce(v.low_s, v.score_s) AS low_s, coalesce(v.high_s, v.score_s) AS high_s
FROM submission s JOIN leaderboard b ON b.id = s.board_id
JOIN run r ON r.submission_id = s.id AND r.problem_version_id = b.problem_version_id AND r.counts AND r.may_rank
JOIN verdict v ON v.run_id = r.id AND v.ranked
WHERE s.person_id = %(person)s AND s.removed_at IS NULL AND b.deleted_at IS NULL AND v.score_s IS NOT NULL
    AND (%(board)s::bigint IS NULL OR b.id = %(board)s) AND {in_time("s")}
ORDER BY s.id DESC LIMIT %(most)s
"""

_BOARDS = """
SELECT DISTINCT s.board_id AS id FROM submission s WHERE s.person_id = %(person)s AND s.mode = 'leaderboard'
    AND s.removed_at IS NULL AND s.board_id = ANY(%(boards)s)
"""

_SUBMITTED_TO = """
SELECT b.name FROM leaderboard b WHERE b.deleted_at IS NULL AND EXISTS (
    SELECT 1 FROM submission s WHERE s.board_id = b.id AND s.person_id = %(person)s AND s.removed_at IS NULL)
ORDER BY lower(b.name)
"""

_SAMPLES = """
SELECT r.id AS run, x.data FROM raw_samples x JOIN verdict v ON v.attempt_id = x.attempt_id
JOIN run r ON r.id = v.run_id WHERE r.submission_id = %(submission)s AND r.counts
"""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A ranked score of somebody's own, of the board's live problem, with the board's time zone."""

    board_id: int
    board: str
    zone: str
    gpu: str
    submission_id: int
    at: datetime
    score_s: float
    low_s: float
    high_s: float


class OwnScores(Rows):
    """What people have reached, one by one."""

    def scored(self, person: PersonId, *, board: int | None = None, most: int) -> list[Scored]:
        """This person's newest ranked scores, the oldest of them first. Their own verdicts, which they see always."""
        found = self._all(_SCORED, {"person": person, "board": board, "most": most})
        return [Scored(**row) for row in reversed(found)]

    def boards_of(self, person: PersonId, boards: Collection[int]) -> frozenset[int]:
        """To which of these boards this person has submitted for the ranking."""
        found = self._all(_BOARDS, {"person": person, "boards": list(boards)})
        return frozenset(row["id"] for row in found)

    def submitted_to(self, person: PersonId) -> list[str]:
        """The names of the boards that this person has submitted to."""
        return [row["name"] for row in self._all(_SUBMITTED_TO, {"person": person})]

    def samples(self, submission: SubmissionId) -> dict[int, list[LaunchSamples]]:
        """What was measured in each of its runs, as its author may see it."""
        return {row["run"]: _launches(row["data"]) for row in self._all(_SAMPLES, {"submission": submission})}


def _launches(data: bytes) -> list[LaunchSamples]:
    rows = access.shown_samples(json.loads(zlib.decompress(data)))
    return [LaunchSamples(**{**row, **{name: _times(row[name]) for name in ("own", "baseline")}}) for row in rows]


def _times(found: dict[str, list[int]] | None) -> CallTimes | None:
    return None if found is None else CallTimes(**found)
