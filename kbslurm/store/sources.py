"""Sources of boards as checks of them take them: for similarity by who wrote them, and for which team; for a scanner by
what ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kbslurm.store.connect import Pool
from kbslurm.store.rows import Rows

# What somebody submitted twice counts once, as of when they did so first. What ranks comes first, and then what may:
# whoever submits much afterwards moves none of that out of sight.
_SOURCES = """
WITH best AS (
    SELECT DISTINCT ON (s.person_id, s.board_id, r.gpu) s.person_id, s.board_id, s.sha256
    FROM submission s JOIN run r ON r.submission_id = s.id JOIN verdict v ON v.run_id = r.id
    WHERE s.board_id = ANY(%(boards)s) AND v.ranked AND v.score_s IS NOT NULL
    ORDER BY s.person_id, s.board_id, r.gpu, v.score_s
), once AS (
    SELECT min(s.id) AS submission, max(s.id) AS newest, s.person_id AS person, s.board_id, s.sha256,
        min(s.accepted_at) AS accepted_at, bool_or(s.mode = 'leaderboard') AS may_rank
    FROM submission s WHERE s.board_id = ANY(%(boards)s) AND s.removed_at IS NULL AND s.source <> ''
    GROUP BY s.person_id, s.board_id, s.sha256
), counted AS (
    SELECT once.*, row_number() OVER (PARTITION BY person, board_id ORDER BY
        (person, board_id, sha256) IN (SELECT person_id, board_id, sha256 FROM best) DESC, may_rank DESC, newest DESC
    ) AS place FROM once
)
SELECT c.submission, c.person, p.name, b.name AS board, r.section, kb_team_of(p.id, b.id) AS team, b.course,
    c.accepted_at, c.place
FROM counted c JOIN person p ON p.id = c.person JOIN leaderboard b ON b.id = c.board_id
LEFT JOIN roster r ON r.course = b.course AND r.person_id = p.id
ORDER BY c.submission
"""

# What stands as somebody's best first, then what else ranks.
_RANKED = """
WITH scored AS (
    SELECT s.id, s.person_id, r.gpu, v.score_s
    FROM submission s JOIN leaderboard b ON b.id = s.board_id
    JOIN run r ON r.submission_id = s.id AND r.problem_version_id = b.problem_version_id AND r.counts AND r.may_rank
    JOIN verdict v ON v.run_id = r.id AND v.ranked
    WHERE s.board_id = %(board)s AND s.removed_at IS NULL AND s.source <> '' AND v.score_s IS NOT NULL
), best AS (
    SELECT DISTINCT ON (person_id, gpu) id, gpu FROM scored ORDER BY person_id, gpu, score_s, id
)
SELECT s.id AS submission, p.name AS person, s.file_name, s.sha256, s.accepted_at,
    ARRAY(SELECT gpu FROM best WHERE best.id = s.id ORDER BY gpu) AS best_on
FROM submission s JOIN person p ON p.id = s.person_id
WHERE s.id IN (SELECT id FROM scored)
ORDER BY s.id IN (SELECT id FROM best) DESC, s.id DESC LIMIT %(limit)s OFFSET %(offset)s
"""


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A submission that ranks. `best_on`: the GPU types on which it is its author's best."""

    submission: int
    person: str
    file_name: str
    sha256: str
    accepted_at: datetime
    best_on: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A submission whose source can be compared. `place`: which one it is of the same person's on that board, counted
    from what ranks, and then from the newest."""

    submission: int
    person: int
    name: str
    board: str
    section: str | None
    team: str | None
    course: str | None
    accepted_at: datetime
    place: int

    @property
    def side(self) -> str:
        """Whom they work with: their team, else they alone."""
        return f"person:{self.person}" if self.team is None else f"team:{self.course or ''}:{self.team}"


class Sources(Rows):
    """Boards' sources."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)

    def listed(self, boards: Sequence[int]) -> list[Listed]:
        """Everybody's sources on these boards, the oldest first."""
        return [Listed(**row) for row in self._all(_SOURCES, {"boards": list(boards)})]

    def ranked(self, board: int, *, limit: int, offset: int = 0) -> list[Ranked]:
        """What ranks on this board and wasn't taken back: the best of each person, then the others, newest first."""
        told = {"board": board, "limit": limit, "offset": offset}
        return [Ranked(**row) for row in self._all(_RANKED, told)]

    def text(self, submission: int) -> tuple[str, str]:
        """The file name and the text of a submission; empty if it was taken back meanwhile."""
        found = self._one("SELECT file_name, source FROM submission WHERE id = %(id)s", {"id": submission})
        return ("", "") if found is None else (found["file_name"], found["source"])
