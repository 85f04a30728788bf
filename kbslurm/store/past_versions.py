"""A board's scores by version of its problem: of the live one, and of those that were live before it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kbslurm.domain import access
from kbslurm.domain.board import Entry
from kbslurm.store.boards import Boards
from kbslurm.store.connect import Pool
from kbslurm.store.deadlines import in_time
from kbslurm.store.final_scores import FINAL_SCORES, SIDE, UNBOUND, bound
from kbslurm.store.rows import Rows
from kbslurm.store.standings import SHOWN_NAME, SHOWN_TEAM
from kbslurm.store.views import Board

# What a rejudge that nobody has applied says is for hosts only. Of several measurements by an
# earlier version the last one decides.
_LAST = f"""
SELECT DISTINCT ON (s.id, r.gpu, r.problem_version_id) p.id AS person_id, {SHOWN_NAME} AS person, {SHOWN_TEAM} AS team,
    s.id AS submission_id, r.id AS run_id, coalesce(fs.score_s, v.score_s) AS score_s,
    coalesce(fs.low_s, v.low_s, v.score_s) AS low_s, coalesce(fs.high_s, v.high_s, v.score_s) AS high_s,
    s.accepted_at AS at, s.file_name, v.ranked AND {UNBOUND.format(submission="s.id")} AS ranked,
    r.problem_version_id AS version
FROM submission s JOIN leaderboard b ON b.id = s.board_id JOIN person p ON p.id = s.person_id
JOIN run r ON r.submission_id = s.id AND r.may_rank JOIN verdict v ON v.run_id = r.id
LEFT JOIN rejudging j ON j.id = r.rejudging_id
LEFT JOIN ({FINAL_SCORES}) fs ON fs.run_id = r.id
{bound(side=SIDE.format(s="s"), run="r")}
WHERE s.board_id = %(board)s AND s.mode = 'leaderboard' AND s.removed_at IS NULL AND p.banned_at IS NULL
    AND (%(gpu)s::text IS NULL OR r.gpu = %(gpu)s) AND (r.rejudging_id = 0 OR j.state = 'applied')
    AND (%(version)s::bigint IS NULL OR r.problem_version_id = %(version)s)
    AND (r.counts OR r.problem_version_id <> b.problem_version_id)
    AND (%(until)s::timestamptz IS NULL OR s.accepted_at <= %(until)s) AND {in_time("s")}
ORDER BY s.id, r.gpu, r.problem_version_id, r.id DESC
"""

_BEST = f"""
SELECT person_id, person, team, submission_id, run_id, score_s, low_s, high_s, at, file_name FROM (
    SELECT DISTINCT ON (coalesce('team ' || team, person_id::text)) * FROM ({_LAST}) last
    WHERE ranked AND score_s IS NOT NULL ORDER BY coalesce('team ' || team, person_id::text), score_s, at, submission_id
) best ORDER BY score_s, at, submission_id
"""

_VERSIONS = f"""
SELECT n.id, n.digest, n.created_at FROM problem_version n
WHERE n.id IN (SELECT version FROM ({_LAST}) last WHERE ranked) ORDER BY n.id
"""


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of a problem by which a board ranked."""

    id: int
    digest: str
    created_at: datetime


class PastVersions(Rows):
    """What a board's versions came to, as the standings show people."""

    def __init__(self, pool: Pool, boards: Boards) -> None:
        super().__init__(pool)
        self._boards = boards

    def of_board(self, board: Board) -> list[Version]:
        """The versions for which something ranks, the oldest first; none where standings are hidden."""
        if not access.shows_standings(board.standings):
            return []
        told = {"board": board.id, "gpu": None, "version": None, "until": access.shown_until(board.frozen_at)}
        return [Version(**row) for row in self._all(_VERSIONS, told)]

    def best(self, board: Board, gpu: str, version: int) -> list[Entry]:
        """The best of each person, or team, by this version, in order, as others see them."""
        if not access.shows_standings(board.standings):
            return []
        told = {"board": board.id, "gpu": gpu, "version": version, "until": access.shown_until(board.frozen_at)}
        found = [Entry(**row) for row in self._all(_BEST, told)]
        if access.names_people(board.names):
            return found
        disguise = self._boards.disguise(board)
        return [disguise.entry(one) for one in found]
