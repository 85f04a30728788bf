"""What a board's contest feed tells: the submissions that were made for its ranking, and what became of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kbslurm.domain.run import EventId, PersonId, SubmissionId
from kbslurm.store.connect import Pool
from kbslurm.store.deadlines import in_time
from kbslurm.store.final_scores import FINAL_SCORES, bound, limited
from kbslurm.store.rows import Rows
from kbslurm.store.standings import SHOWN_NAME, SHOWN_TEAM
from kbslurm.store.views import Board
from kbslurm_eval.shared.wire import VerdictName

# Late submissions never rank, so they aren't told. `until`: how far others see; one's own are told always.
_FROM = f"""
FROM submission s
JOIN leaderboard b ON b.id = s.board_id
JOIN person p ON p.id = s.person_id
JOIN LATERAL (SELECT * FROM run WHERE run.submission_id = s.id OFFSET 0) r
    ON r.problem_version_id = b.problem_version_id AND r.counts AND r.state <> 'cancelled' AND r.gpu = ANY(b.gpus)
WHERE s.board_id = %(board)s AND s.mode = 'leaderboard' AND s.removed_at IS NULL AND p.banned_at IS NULL
    AND (%(until)s::timestamptz IS NULL OR s.accepted_at <= %(until)s OR s.person_id = %(viewer)s) AND {in_time("s")}
"""
_SIDE = f"coalesce('team ' || ({SHOWN_TEAM}), s.person_id::text)"

_OWN = "coalesce(fs.{name}, v.{name})"
_ENTRIES = f"""
SELECT entered.submission_id, entered.person_id, entered.side, entered.name, entered.gpu, entered.at,
    v.name AS verdict, v.at AS judged_at, coalesce(a.started_at, a.opened_at, entered.queued_at) AS began_at,
    CASE WHEN v.ranked AND entered.may_rank THEN {limited("score_s", _OWN, "entered.submission_id")} END AS score_s,
    {limited("low_s", _OWN, "entered.submission_id")} AS low_s,
    {limited("high_s", _OWN, "entered.submission_id")} AS high_s
FROM (
    SELECT DISTINCT ON (s.id, r.gpu) s.id AS submission_id, s.person_id, s.accepted_at AS at, r.id AS run_id, r.gpu,
        r.queued_at, r.may_rank, r.problem_version_id, {SHOWN_NAME} AS name, {_SIDE} AS side
    {_FROM} {{which}}
    ORDER BY s.id, r.gpu, r.id DESC LIMIT %(limit)s
) entered
LEFT JOIN verdict v ON v.run_id = entered.run_id
LEFT JOIN attempt a ON a.id = v.attempt_id
LEFT JOIN ({FINAL_SCORES}) fs ON fs.run_id = entered.run_id
{bound(side="entered.side", run="entered")}
ORDER BY entered.submission_id, entered.gpu
"""
_PAGE = _ENTRIES.format(which="AND s.id >= %(submission)s AND (s.id, r.gpu) > (%(submission)s, %(gpu)s)")
_OF = _ENTRIES.format(which="AND s.id = ANY(%(submissions)s)")
_TEAMS = f"SELECT DISTINCT {_SIDE} AS side, {SHOWN_NAME} AS name {_FROM} ORDER BY side"

# Submissions that whoever asks has been told of, and that the board no longer has.
_WITHDRAWN = f"""
SELECT EXISTS (
    SELECT 1 FROM submission s JOIN leaderboard b ON b.id = s.board_id
    WHERE s.id = ANY(%(submissions)s) AND s.board_id = %(board)s AND s.mode = 'leaderboard'
        AND (%(until)s::timestamptz IS NULL OR s.accepted_at <= %(until)s OR s.person_id = %(viewer)s)
        AND {in_time("s")}
) AS found
"""

# `whole`: something may have changed for any of its submissions.
_CHANGED = """
SELECT bool_or(e.subject = 'board:' || %(board)s AND NOT e.kind = ANY(%(still)s)
        OR CASE WHEN e.kind IN ('staff.ban', 'staff.unban') THEN EXISTS (
            SELECT 1 FROM submission s
            WHERE s.person_id = substr(e.subject, length('person:') + 1)::bigint AND s.board_id = %(board)s
        ) END) AS whole,
    array_agg(DISTINCT CASE
        WHEN e.kind IN ('run.scored', 'run.failed', 'run.cancelled') THEN (e.data ->> 'submission')::bigint
        WHEN e.kind LIKE 'submission.%%' THEN substr(e.subject, length('submission:') + 1)::bigint END) AS submissions
FROM event e WHERE e.id > %(after)s AND e.id <= %(settled)s
"""
_OF_BOARD = "SELECT id FROM submission WHERE id = ANY(%(submissions)s) AND board_id = %(board)s ORDER BY id"
LOOK = 20_000
# Hosts' actions on a board that change nothing that is told.
_STILL = [
    "board.calibrated", "board.nickname", "staff.board_role", "staff.final", "staff.final_forgotten", "staff.invite",
    "staff.quota", "staff.rate_limit", "staff.rejudge", "staff.rejudge_cancelled", "staff.visibility",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Entered:
    """A submission for a board's ranking on one GPU type, with the run that counts. `side`: the person or, where teams
    count together, the team; not for showing."""

    submission_id: SubmissionId
    person_id: PersonId
    side: str
    name: str
    gpu: str
    at: datetime
    verdict: VerdictName | None
    began_at: datetime
    judged_at: datetime | None
    score_s: float | None
    low_s: float | None
    high_s: float | None


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What may have changed up to an event: these submissions, or any (None)."""

    upto: EventId
    submissions: tuple[SubmissionId, ...] | None


class Contests(Rows):
    """Boards as contests. `until` and `viewer` are who asks: how far they see, and whose own are told them anyway."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)

    def page(
        self, board: Board, after: tuple[int, str], limit: int, *, until: datetime | None, viewer: PersonId | None
    ) -> list[Entered]:
        """Those after this submission and GPU type, in order."""
        more = {"submission": after[0], "gpu": after[1], "limit": limit}
        return self._entered(_PAGE, board, until, viewer, more)

    def of(
        self, board: Board, submissions: Collection[int], *, until: datetime | None, viewer: PersonId | None
    ) -> list[Entered]:
        """Those of these submissions."""
        return self._entered(_OF, board, until, viewer, {"submissions": list(submissions), "limit": None})

    def teams(self, board: Board, *, until: datetime | None, viewer: PersonId | None) -> list[tuple[str, str]]:
        """Everyone who has entered: side and name."""
        found = self._all(_TEAMS, {"board": board.id, "until": until, "viewer": viewer})
        return [(row["side"], row["name"]) for row in found]

    def changed(self, board: Board, after: EventId, settled: EventId) -> Changes:
        """What may have changed after one event and up to another."""
        if settled - after > LOOK:
            return Changes(upto=settled, submissions=None)
        told: dict[str, Any] = {"board": board.id, "after": after, "settled": settled, "still": _STILL}
        found = self._one(_CHANGED, told)
        assert found is not None
        if found["whole"]:
            return Changes(upto=settled, submissions=None)
        touched = [one for one in found["submissions"] or () if one is not None]
        if touched:
            rows = self._all(_OF_BOARD, {"board": board.id, "submissions": touched})
            touched = [row["id"] for row in rows]
        return Changes(upto=settled, submissions=tuple(touched))

    def withdrawn(
        self, board: Board, submissions: Collection[int], *, until: datetime | None, viewer: PersonId | None
    ) -> bool:
        """Whether one of these, which the board doesn't have now, is one that they were told of."""
        told = {"board": board.id, "submissions": list(submissions), "until": until, "viewer": viewer}
        found = self._one(_WITHDRAWN, told)
        return found is not None and bool(found["found"])

    def _entered(
        self, statement: str, board: Board, until: datetime | None, viewer: PersonId | None, more: dict[str, Any]
    ) -> list[Entered]:
        rows = self._all(statement, {"board": board.id, "until": until, "viewer": viewer, **more})
        return [Entered(**row) for row in rows]
