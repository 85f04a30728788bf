"""The ranking of a board, and what may have changed it."""

from __future__ import annotations

from collections.abc import Collection

from kbslurm.domain.board import Entry
from kbslurm.domain.run import EventId, PersonId
from kbslurm.errors import NotFound
from kbslurm.store.boards import Boards
from kbslurm.store.connect import Pool
from kbslurm.store.events import Events
from kbslurm.store.rows import Rows
from kbslurm.store.views import Moved

_SCORED_BY = """
SELECT p.id AS person_id, p.name AS person, s.id AS submission_id, r.id AS run_id,
    coalesce(fs.score_s, v.score_s) AS score_s, coalesce(fs.low_s, v.low_s) AS low_s,
    coalesce(fs.high_s, v.high_s) AS high_s, s.accepted_at AS at, s.file_name
FROM submission s
JOIN leaderboard b ON b.id = s.board_id
JOIN person p ON p.id = s.person_id
JOIN {run} ON r.submission_id = s.id AND r.problem_version_id = b.problem_version_id AND r.counts AND r.may_rank
JOIN verdict v ON v.run_id = r.id AND v.ranked
LEFT JOIN final_score fs ON fs.run_id = r.id
WHERE s.board_id = %(board)s AND s.removed_at IS NULL AND p.banned_at IS NULL
    AND (%(gpu)s::text IS NULL OR r.gpu = %(gpu)s){whose}
    AND (b.ranking = 'best' OR s.id = (
        SELECT max(t.id) FROM submission t
        JOIN run tr ON tr.submission_id = t.id AND tr.problem_version_id = r.problem_version_id AND tr.gpu = r.gpu
            AND tr.counts AND tr.may_rank
        JOIN verdict tv ON tv.run_id = tr.id AND tv.ranked
        WHERE t.board_id = s.board_id AND t.person_id = s.person_id AND t.removed_at IS NULL
    ))
ORDER BY coalesce(fs.score_s, v.score_s), s.accepted_at, s.id, r.id
"""

_SCORED = _SCORED_BY.format(run="run r", whose="")

# Looked up one by one: otherwise the planner reads every run because of the costly part that only `last` needs.
_SCORED_OF = _SCORED_BY.format(
    run="LATERAL (SELECT * FROM run WHERE run.submission_id = s.id OFFSET 0) r",
    whose=" AND s.person_id = ANY(%(people)s)",
)

_BEST = f"""
SELECT * FROM (
    SELECT DISTINCT ON (person_id) * FROM ({_SCORED}) scored ORDER BY person_id, score_s, at, submission_id, run_id
) best ORDER BY score_s, at, submission_id, run_id
"""

_RECORDS = f"""
SELECT person_id, person, submission_id, run_id, score_s, low_s, high_s, at, file_name FROM (
    SELECT scored.*, min(score_s) OVER (
        ORDER BY at, submission_id, score_s, run_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before FROM ({_SCORED}) scored
) compared WHERE before IS NULL OR score_s < before ORDER BY at, submission_id, score_s, run_id
"""

# What can change a board's ranking: a ranked verdict, a dropped second measurement, changes to the board, and people
# and submissions that appear or disappear. Names the people affected if known; else `whole`.
_MOVED = """
SELECT bool_or(e.subject = 'board:' || %(board)s) AS changed,
    bool_or(e.subject = 'board:' || %(board)s AND NOT e.kind = ANY(%(still)s)) AS whole,
    array_agg(DISTINCT CASE
        WHEN e.kind IN ('staff.ban', 'staff.unban') THEN substr(e.subject, length('person:') + 1)::bigint
        WHEN e.kind = 'run.cancelled' OR e.kind = 'run.scored' AND (e.data ->> 'ranked')::boolean THEN
            (SELECT s.person_id FROM submission s WHERE s.id = (e.data ->> 'submission')::bigint
                AND s.board_id = %(board)s)
        WHEN e.kind = 'submission.removed' THEN
            (SELECT s.person_id FROM submission s
                WHERE s.id = substr(e.subject, length('submission:') + 1)::bigint AND s.board_id = %(board)s)
        END) AS people
FROM event e WHERE e.id > %(after)s AND e.id <= %(settled)s
"""

MOVED_LOOK = 20_000

# Hosts' actions on a board that don't change the ranking.
_STILL = [
    "board.calibrated", "staff.close", "staff.deadline", "staff.extend", "staff.final", "staff.final_forgotten",
    "staff.invite", "staff.quota", "staff.rate_limit", "staff.rejudge", "staff.rejudge_cancelled", "staff.visibility",
]  # fmt: skip


class Standings(Rows):
    """The runs that rank."""

    def __init__(self, pool: Pool, boards: Boards, events: Events) -> None:
        super().__init__(pool)
        self._boards, self._events = boards, events

    def scored(self, board: str, gpu: str | None = None) -> list[Entry]:
        """Every run that ranks on this board, best first: of the live version, not of banned people, not removed.

        On a board that ranks by `last` only each person's latest one per GPU type.
        """
        return self._scored(_SCORED, board, gpu)

    def best(self, board: str, gpu: str) -> list[Entry]:
        """Each person's best of these, in order: all that a ranking needs."""
        return self._scored(_BEST, board, gpu)

    def scored_of(self, board: str, gpu: str, people: Collection[PersonId]) -> list[Entry]:
        """The same, for these people only."""
        return self._scored(_SCORED_OF, board, gpu, people)

    def records(self, board: str, gpu: str) -> list[Entry]:
        """The ones that were better than all before them, oldest first."""
        return self._scored(_RECORDS, board, gpu)

    def _scored(self, statement: str, board: str, gpu: str | None, people: Collection[PersonId] = ()) -> list[Entry]:
        held = self._one(
            "SELECT id FROM leaderboard WHERE lower(name) = lower(%(name)s) AND deleted_at IS NULL",
            {"name": board.strip()},
        )
        if held is None:
            raise NotFound("board", board, known=self._boards.names(public_only=True))
        told = {"board": held["id"], "gpu": gpu, "people": list(people)}
        return [Entry(**row) for row in self._all(statement, told)]

    def moved(self, board: int, after: EventId) -> Moved:
        """What may have changed the ranking since `after`."""
        settled = self._events.last()
        if settled <= after:
            return Moved(upto=after, changed=False, people=frozenset())
        if settled - after > MOVED_LOOK:
            return Moved(upto=settled, changed=True, people=None)
        found = self._one(_MOVED, {"board": board, "after": after, "settled": settled, "still": _STILL})
        assert found is not None
        people = frozenset(PersonId(one) for one in found["people"] or () if one is not None)
        return Moved(upto=settled, changed=bool(found["changed"]), people=None if found["whole"] else people)
