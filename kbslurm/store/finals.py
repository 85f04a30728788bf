"""Finals: who takes part, the results, and whether they count."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import psycopg

from kbslurm.domain import access, contest
from kbslurm.domain import board as boards
from kbslurm.domain.finals import FINAL, Gap, Outcome, from_detail, staged
from kbslurm.domain.manifest import time_limit_s
from kbslurm.domain.run import RunState
from kbslurm.errors import Invalid, NotFound, Refused
from kbslurm.store.boards import Boards
from kbslurm.store.connect import Connection, Pool
from kbslurm.store.deadlines import practice
from kbslurm.store.final_scores import NEWEST_SCORES
from kbslurm.store.people import own_person
from kbslurm.store.rows import Rows, note_event, or_now
from kbslurm.store.standings import Standings
from kbslurm_eval.shared.wire import RIVALS_MOST

State = Literal["open", "applied", "forgotten"]

_ORDER = f"""
WITH taken AS (
    INSERT INTO submission (person_id, board_id, mode, file_name, source, sha256, via, by_staff, accepted_at,
        removed_at)
    VALUES (%(person)s, %(board)s, 'leaderboard', 'final.py', %(source)s, %(sha256)s, '{FINAL}', %(by_staff)s,
        %(now)s, %(now)s)
    RETURNING id
), due AS (
    INSERT INTO run (submission_id, problem_version_id, person_id, gpu, fair_at, queued_at, cost_s, by_staff,
        secret_seed)
    SELECT id, %(version)s, %(person)s, %(gpu)s, %(now)s, %(now)s, %(cost_s)s, %(by_staff)s, %(seed)s FROM taken
    RETURNING id, submission_id, gpu
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'run.queued', 'run:' || id, jsonb_build_object('submission', submission_id, 'gpu', gpu, 'final', true),
        %(now)s FROM due
)
INSERT INTO final (board_id, problem_version_id, gpu, run_id, created_by, created_at)
SELECT %(board)s, %(version)s, %(gpu)s, id, %(by)s, %(now)s FROM due RETURNING id
"""

_FINAL = f"""
SELECT f.id, f.board_id, f.gpu, f.state, f.created_by, f.created_at, r.id AS run_id, r.state AS run_state, r.reason,
    v.detail, v.name AS verdict, v.reason AS verdict_reason, CASE WHEN f.state = 'open' THEN (
        SELECT count(*) FROM submission s JOIN leaderboard b ON b.id = s.board_id
        JOIN run w ON w.submission_id = s.id AND w.gpu = f.gpu AND w.problem_version_id = f.problem_version_id
        WHERE s.board_id = f.board_id AND s.mode = 'leaderboard' AND s.removed_at IS NULL
            AND s.accepted_at <= f.created_at AND w.counts AND w.ended_at IS NULL AND NOT {practice("s")}
    ) ELSE 0 END AS unjudged
FROM final f JOIN run r ON r.id = f.run_id LEFT JOIN verdict v ON v.run_id = r.id
WHERE f.board_id = %(board)s AND f.gpu = %(gpu)s AND f.state = %(state)s
    AND (%(until)s::timestamptz IS NULL OR f.decided_at <= %(until)s) ORDER BY f.id DESC LIMIT 1
"""

_RIVALS = """
SELECT fr.place, fr.run_id, s.id AS submission_id, p.id AS person_id, CASE WHEN b.teams THEN s.team END AS team,
    CASE WHEN b.teams THEN coalesce(s.team, p.name) ELSE p.name END AS person, v.score_s
FROM final_rival fr JOIN run r ON r.id = fr.run_id JOIN submission s ON s.id = r.submission_id
JOIN person p ON p.id = s.person_id JOIN leaderboard b ON b.id = s.board_id JOIN verdict v ON v.run_id = r.id
WHERE fr.final_id = %(final)s ORDER BY fr.place
"""

# Who failed in it gets the slow end of the interval that counted before.
_DROP_OUT = f"""
INSERT INTO final_score (run_id, final_id, score_s, low_s, high_s)
SELECT v.run_id, %(final)s, coalesce(fs.high_s, v.high_s, v.score_s), coalesce(fs.low_s, v.low_s, v.score_s),
    coalesce(fs.high_s, v.high_s, v.score_s)
FROM verdict v LEFT JOIN ({NEWEST_SCORES}) fs ON fs.run_id = v.run_id WHERE v.run_id = %(run)s
"""


@dataclass(frozen=True, kw_only=True)
class Rival:
    """One participant: the place before, and the result."""

    place: int
    person: str
    submission_id: int
    run_id: int
    before_s: float
    outcome: Outcome | None


@dataclass(frozen=True, kw_only=True)
class Final:
    """A final's state. `gaps` refer to rivals by their earlier place minus one. `unjudged`: ranked runs that were
    accepted before an open one, and haven't ended; it binds none of them."""

    id: int
    board: str
    gpu: str
    state: State
    run_state: RunState
    reason: str
    created_by: str
    created_at: datetime
    rivals: tuple[Rival, ...]
    gaps: tuple[Gap, ...]
    unjudged: int

    @property
    def is_done(self) -> bool:
        """Whether it was measured completely."""
        return any(rival.outcome is not None for rival in self.rivals)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, with or without a result."""
        return self.run_state in (RunState.SCORED, RunState.FAILED, RunState.CANCELLED)


class Finals(Rows):
    """Finals of a board: order, show, apply or discard."""

    def __init__(self, pool: Pool, boards: Boards, standings: Standings) -> None:
        super().__init__(pool)
        self._boards, self._standings = boards, standings

    def open(self, board: str, gpu: str) -> Final | None:
        """The one that awaits a decision."""
        return self._find(board, gpu, "open", live=True)

    def applied(self, board: str, gpu: str, *, live: bool = False) -> Final | None:
        """The latest one that counts; on a frozen board, the latest from before the freeze unless `live`, and with
        people as whom others see them."""
        return self._find(board, gpu, "applied", live=live)

    def _find(self, board: str, gpu: str, state: State, *, live: bool) -> Final | None:
        held = self._boards.get(board, counted=False)
        if not access.shows_standings(held.standings, host=live):
            return None
        until = access.shown_until(held.frozen_at, host=live)
        told = {"board": held.id, "gpu": contest.known_gpu(gpu, held.gpus), "state": state, "until": until}
        found = self._one(_FINAL, told)
        if found is None:
            return None
        outcomes, gaps = from_detail(found["detail"])
        by_rival = {outcome.rival: outcome for outcome in outcomes}
        rows = self._all(_RIVALS, {"final": found["id"]})
        rivals = [
            Rival(
                place=row["place"],
                person=row["person"],
                submission_id=row["submission_id"],
                run_id=row["run_id"],
                before_s=row["score_s"],
                outcome=by_rival.get(n),
            )
            for n, row in enumerate(rows)
        ]
        if not access.names_people(held.names, host=live):
            disguise = self._boards.disguise(held)
            rivals = [
                one
                if (name := disguise.name_of(row["person_id"], row["team"])) is None
                else replace(
                    one,
                    person=name,
                    submission_id=disguise.number("submission", one.submission_id),
                    run_id=disguise.number("run", one.run_id),
                    outcome=one.outcome and replace(one.outcome, reason=""),
                )
                for one, row in zip(rivals, rows, strict=True)
            ]
        return Final(
            id=found["id"],
            board=held.name,
            gpu=found["gpu"],
            state=found["state"],
            run_state=RunState(found["run_state"]),
            reason=found["verdict_reason"] or found["reason"] or "",
            created_by=found["created_by"],
            created_at=found["created_at"],
            rivals=tuple(rivals),
            gaps=tuple(gaps),
            unjudged=found["unjudged"],
        )

    def order(self, board: str, gpu: str, top: int, *, by: str, now: datetime | None = None) -> Final:
        """Queue one job with the first `top` of this board. Invalid if fewer than two rank."""
        held, at = self._boards.get(board), or_now(now)
        kind = contest.known_gpu(gpu, held.gpus)
        if not 2 <= top <= RIVALS_MOST:
            raise Invalid(f"a final needs 2 to {RIVALS_MOST} participants, not {top}")
        rows = boards.Ranking(self._standings.unfixed(held.name, kind))[:top]
        if len(rows) < 2:
            raise Invalid(f"board {held.name} has fewer than two ranked people on {kind}")
        sources = self._sources([row.entry.submission_id for row in rows])
        problem = staged(held.problem, [text for text, _ in sources])
        lead = held.problem.baseline or sources[0][0]
        told = {
            "board": held.id,
            "version": held.problem_version_id,
            "gpu": kind,
            "source": lead,
            "sha256": hashlib.sha256(lead.encode()).hexdigest(),
            # It runs other people's code, so it can't go to staff-only places unless all participants are staff.
            "by_staff": all(staff for _, staff in sources),
            "cost_s": time_limit_s(problem, "leaderboard"),
            "seed": secrets.token_hex(16),
            "by": by,
            "now": at,
        }
        try:
            with self._pool.transaction() as connection:
                made = connection.execute(_ORDER.encode(), {**told, "person": own_person(connection, at)}).fetchone()
                assert made is not None
                for row in rows:
                    connection.execute(
                        b"INSERT INTO final_rival (final_id, place, run_id) VALUES (%(final)s, %(place)s, %(run)s)",
                        {"final": made["id"], "place": row.rank, "run": row.entry.run_id},
                    )
                note_event(connection, "staff.final", f"board:{held.id}", {"gpu": kind, "top": len(rows), "by": by}, at)
        except psycopg.errors.UniqueViolation:
            raise Invalid(
                f"a final of {held.name} on {kind} is open already", hint="Apply or discard that one first."
            ) from None
        ordered = self.open(held.name, kind)
        assert ordered is not None
        return ordered

    def apply(self, board: str, gpu: str, *, by: str, now: datetime | None = None) -> Final:
        """Make its scores count for the participants, all together. Refused until it has been measured. Of whoever
        failed in it the slow end of the score's interval counts."""
        known, at = self._get_open(board, gpu), or_now(now)
        if not known.is_done:
            why = f": {known.reason}" if known.is_over and known.reason else ""
            raise Refused(
                f"the final wasn't measured{why}" if known.is_over else "the final hasn't been measured yet",
                hint="Discard it and order another." if known.is_over else "Apply it once it has.",
            )
        with self._pool.transaction() as connection:
            self._decide(connection, known, "applied", at)
            for rival in known.rivals:
                if rival.outcome is not None and rival.outcome.failed:
                    connection.execute(_DROP_OUT.encode(), {"run": rival.run_id, "final": known.id})
                if rival.outcome is not None and rival.outcome.score_s is not None:
                    connection.execute(
                        b"INSERT INTO final_score (run_id, final_id, score_s, low_s, high_s)"
                        b" VALUES (%(run)s, %(final)s, %(score)s, %(low)s, %(high)s)",
                        {
                            "run": rival.run_id,
                            "final": known.id,
                            "score": rival.outcome.score_s,
                            "low": rival.outcome.low_s,
                            "high": rival.outcome.high_s,
                        },
                    )
            said = {"final": known.id, "gpu": known.gpu, "by": by}
            note_event(connection, "staff.final_applied", f"board:{self._boards.get(board).id}", said, at)
        return known

    def forget(self, board: str, gpu: str, *, by: str, now: datetime | None = None) -> Final:
        """Discard it. Its queued or running job is cancelled."""
        known, at = self._get_open(board, gpu), or_now(now)
        with self._pool.transaction() as connection:
            self._decide(connection, known, "forgotten", at)
            said = {"final": known.id, "gpu": known.gpu, "by": by}
            note_event(connection, "staff.final_forgotten", f"board:{self._boards.get(board).id}", said, at)
        return known

    def submission(self, board: str, gpu: str) -> int:
        """The submission that an open final runs as, which is cancelled when it is discarded."""
        known = self._get_open(board, gpu)
        found = self._one(
            "SELECT r.submission_id AS id FROM final f JOIN run r ON r.id = f.run_id WHERE f.id = %(id)s",
            {"id": known.id},
        )
        assert found is not None
        return int(found["id"])

    def rivals_of_run(self, run: int) -> list[str]:
        """The sources that compete in this run, in the order of their places; empty if it isn't a final."""
        found = self._all(
            "SELECT s.source FROM final f JOIN final_rival fr ON fr.final_id = f.id JOIN run r ON r.id = fr.run_id"
            " JOIN submission s ON s.id = r.submission_id WHERE f.run_id = %(run)s ORDER BY fr.place",
            {"run": run},
        )
        return [row["source"] for row in found]

    def _get_open(self, board: str, gpu: str) -> Final:
        known = self.open(board, gpu)
        if known is None:
            raise NotFound("open final of board", board)
        return known

    def _sources(self, submissions: Sequence[int]) -> list[tuple[str, bool]]:
        found = self._all(
            "SELECT id, source, by_staff FROM submission WHERE id = ANY(%(ids)s)", {"ids": list(submissions)}
        )
        by_id = {row["id"]: (row["source"], row["by_staff"]) for row in found}
        return [by_id[number] for number in submissions]

    def _decide(self, connection: Connection, known: Final, state: State, at: datetime) -> None:
        found = connection.execute(
            b"UPDATE final SET state = %(state)s, decided_at = %(now)s WHERE id = %(id)s AND state = 'open'"
            b" RETURNING id",
            {"id": known.id, "state": state, "now": at},
        ).fetchone()
        if found is None:
            raise Refused("someone else has just decided on this final")
