"""Rejudging: new runs next to the old ones, which count only when all are applied together.

A board has at most one open rejudging. Its runs are ordinary runs that carry its number and don't count: they appear in
no list, on no board, and not for their owners.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import psycopg
from psycopg.types.json import Jsonb

from kbslurm.errors import Invalid, NotFound, Refused
from kbslurm.store.attempt_rows import LIVE
from kbslurm.store.boards import Boards
from kbslurm.store.connect import Connection, Pool
from kbslurm.store.problems import Problems
from kbslurm.store.rows import Rows, note_event, or_now
from kbslurm.store.views import Board

# Behind everyone's own runs: their virtual time is one day later.
PATIENCE = timedelta(days=1)

_OPEN = """
SELECT j.id, j.board_id, b.name AS board, j.problem_version_id AS version, b.problem_version_id AS live, j.state,
    j.wanted, j.created_by, j.created_at
FROM rejudging j JOIN leaderboard b ON b.id = j.board_id WHERE j.board_id = %(board)s AND j.state = 'open'
"""

_CHOSEN = """
SELECT r.id, r.submission_id, r.person_id, r.gpu, r.cost_s, r.by_staff, s.mode
FROM run r JOIN submission s ON s.id = r.submission_id LEFT JOIN verdict v ON v.run_id = r.id
WHERE s.board_id = %(board)s AND s.removed_at IS NULL AND r.counts AND r.state IN ('scored', 'failed')
    AND (%(submission)s::bigint IS NULL OR s.id = %(submission)s)
    AND (%(gpu)s::text IS NULL OR lower(r.gpu) = lower(%(gpu)s))
    AND (%(verdict)s::text IS NULL OR v.name = %(verdict)s)
    AND (%(mode)s::text IS NULL OR s.mode = %(mode)s)
    AND (%(person)s::bigint IS NULL OR s.person_id = %(person)s)
"""

_ORDER = f"""
WITH chosen AS ({_CHOSEN}), due AS (
    INSERT INTO run (submission_id, problem_version_id, person_id, gpu, fair_at, queued_at, cost_s, by_staff,
        secret_seed, rejudging_id, counts, held)
    SELECT submission_id, %(version)s, person_id, gpu, %(fair_at)s, %(now)s, cost_s, by_staff,
        left(encode(sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')), 'hex'), 32),
        %(rejudging)s, false,
        mode = 'leaderboard' AND EXISTS (SELECT 1 FROM problem_version v WHERE v.id = %(version)s AND v.paired)
        AND NOT EXISTS (SELECT 1 FROM calibration c
            WHERE c.board_id = %(board)s AND c.problem_version_id = %(version)s AND c.gpu = chosen.gpu)
    FROM chosen
    RETURNING id, submission_id, gpu
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'run.queued', 'run:' || id, jsonb_build_object('submission', submission_id, 'gpu', gpu,
        'rejudging', %(rejudging)s::bigint), %(now)s FROM due
)
SELECT count(*) AS n FROM due
"""

# What the runs took before, or at most take if that isn't known, on all their GPUs.
_ESTIMATE = f"""
WITH chosen AS ({_CHOSEN})
SELECT c.gpu, count(*) AS runs, sum(took.s)::float8 AS run_s, sum(took.s * v.ranks)::float8 AS gpu_s
FROM chosen c JOIN problem_version v ON v.id = %(version)s
CROSS JOIN LATERAL (SELECT coalesce((
    SELECT greatest(0, extract(epoch FROM a.ended_at - a.started_at)) FROM attempt a
    WHERE a.run_id = c.id AND a.started_at IS NOT NULL ORDER BY a.number DESC LIMIT 1), c.cost_s) AS s) took
GROUP BY c.gpu ORDER BY c.gpu
"""

_MATRIX = """
SELECT coalesce(ov.name, o.state) AS before,
    CASE WHEN n.ended_at IS NULL THEN 'open' ELSE coalesce(nv.name, n.state) END AS after, count(*) AS n
FROM run n
JOIN run o ON o.submission_id = n.submission_id AND o.gpu = n.gpu AND o.counts
LEFT JOIN verdict ov ON ov.run_id = o.id
LEFT JOIN verdict nv ON nv.run_id = n.id
WHERE n.rejudging_id = %(rejudging)s AND NOT n.counts
GROUP BY 1, 2 ORDER BY 1, 2
"""

_COST = """
SELECT coalesce(sum(extract(epoch FROM a.ended_at - a.started_at)) FILTER (WHERE r.rejudging_id = %(rejudging)s
    AND a.ended_at > a.started_at), 0)::float8 AS spent,
    coalesce(sum(extract(epoch FROM a.ended_at - a.started_at)) FILTER (WHERE r.rejudging_id <> %(rejudging)s
    AND a.ended_at > a.started_at), 0)::float8 AS expected
FROM run n JOIN run r ON r.submission_id = n.submission_id AND r.gpu = n.gpu AND (r.id = n.id OR r.counts)
JOIN attempt a ON a.run_id = r.id AND a.number = r.attempts
WHERE n.rejudging_id = %(rejudging)s
"""

# What it changes about each appeal that it decides: those that it was ordered for, and open ones that waited for any.
_OUTCOMES = """
WITH changed AS (
    SELECT n.submission_id, jsonb_agg(jsonb_build_object('gpu', n.gpu, 'before', coalesce(ov.name, o.state),
        'before_s', ov.score_s, 'after', coalesce(nv.name, n.state), 'after_s', nv.score_s,
        'counts', n.state = 'scored') ORDER BY n.gpu, n.id) AS outcome
    FROM run n
    JOIN run o ON o.submission_id = n.submission_id AND o.gpu = n.gpu AND o.counts
    LEFT JOIN verdict ov ON ov.run_id = o.id
    LEFT JOIN verdict nv ON nv.run_id = n.id
    WHERE n.rejudging_id = %(rejudging)s AND NOT n.counts
    GROUP BY n.submission_id
)
UPDATE question q SET outcome = c.outcome, rejudging_id = %(rejudging)s FROM changed c
WHERE q.submission_id = c.submission_id
    AND (q.rejudging_id = %(rejudging)s OR (q.appeal AND q.state = 'open' AND q.outcome IS NULL))
"""

_SUPERSEDE = """
UPDATE run o SET counts = false FROM run n
WHERE n.rejudging_id = %(rejudging)s AND n.state = 'scored'
    AND o.submission_id = n.submission_id AND o.gpu = n.gpu AND o.counts
"""

_CANCEL_QUEUED = """
UPDATE run SET state = 'cancelled', cancel_at = %(now)s, ended_at = %(now)s
WHERE rejudging_id = %(rejudging)s AND state = 'queued'
"""

_ASK = f"""
UPDATE run SET cancel_at = %(now)s WHERE rejudging_id = %(rejudging)s AND {LIVE} AND cancel_at IS NULL
"""

State = Literal["open", "applied", "cancelled"]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which runs to judge again: all given criteria must match. Only finished runs that count are considered."""

    submission: int | None = None
    gpu: str | None = None
    verdict: str | None = None
    mode: str | None = None
    person: int | None = None


@dataclass(frozen=True, kw_only=True)
class Rejudging:
    """A rejudge's state. `matrix` counts runs by (old verdict, new verdict or open)."""

    id: int
    board: str
    version: int
    live: int
    created_by: str
    created_at: datetime
    matrix: Mapping[tuple[str, str], int]
    spent_gpu_s: float
    expected_gpu_s: float

    @property
    def open_runs(self) -> int:
        """How many are not judged yet."""
        return sum(n for (_, after), n in self.matrix.items() if after == "open")

    @property
    def changed(self) -> int:
        """How many would get a different verdict."""
        return sum(n for (before, after), n in self.matrix.items() if after not in ("open", before))

    def told(self, state: str) -> dict[str, Any]:
        """As JSON."""
        return {
            "board": self.board,
            "rejudging": self.id,
            "state": state,
            "version": self.version,
            "matrix": [{"before": old, "after": new, "runs": n} for (old, new), n in self.matrix.items()],
            "open": self.open_runs,
            "changed": self.changed,
            "spent_gpu_s": self.spent_gpu_s,
            "expected_gpu_s": self.expected_gpu_s,
        }


class Rejudgings(Rows):
    """A board's rejudges: order, show, apply or cancel."""

    def __init__(self, pool: Pool, boards: Boards, problems: Problems) -> None:
        super().__init__(pool)
        self._boards, self._problems = boards, problems

    def open(self, board: str) -> Rejudging | None:
        """The one that awaits a decision."""
        held = self._boards.get(board)
        found = self._one(_OPEN, {"board": held.id})
        if found is None:
            return None
        told = {"rejudging": found["id"]}
        cost = self._one(_COST, told)
        assert cost is not None
        return Rejudging(
            id=found["id"],
            board=found["board"],
            version=found["version"],
            live=found["live"],
            created_by=found["created_by"],
            created_at=found["created_at"],
            matrix={(row["before"], row["after"]): row["n"] for row in self._all(_MATRIX, told)},
            spent_gpu_s=cost["spent"],
            expected_gpu_s=cost["expected"],
        )

    def order(
        self,
        board: str,
        wanted: Wanted,
        version: int | None,
        *,
        by: str,
        question: int | None = None,
        now: datetime | None = None,
    ) -> Rejudging:
        """Queue new runs for the selection, behind everyone's own. Invalid if it is empty or a rejudge is open.
        `question`: the appeal that it decides on."""
        held, at = self._boards.get(board), or_now(now)
        number = self._version(held, version)
        told: dict[str, Any] = {**vars(wanted), "board": held.id, "version": number, "by": by, "now": at}
        told |= {"fair_at": at + PATIENCE, "wanted": Jsonb({k: v for k, v in vars(wanted).items() if v is not None})}
        try:
            with self._pool.transaction() as connection:
                made = connection.execute(
                    b"INSERT INTO rejudging (board_id, problem_version_id, wanted, created_by, created_at)"
                    b" VALUES (%(board)s, %(version)s, %(wanted)s, %(by)s, %(now)s) RETURNING id",
                    told,
                ).fetchone()
                assert made is not None
                found = connection.execute(_ORDER.encode(), {**told, "rejudging": made["id"]}).fetchone()
                assert found is not None
                if not found["n"]:
                    raise Invalid(
                        f"board {held.name} has no matching runs", hint="Only finished runs can be judged again."
                    )
                if question is not None:
                    connection.execute(
                        b"UPDATE question SET rejudging_id = %(rejudging)s, outcome = NULL WHERE id = %(question)s",
                        {"rejudging": made["id"], "question": question},
                    )
                about = {} if question is None else {"question": question}
                said = {"runs": found["n"], "version": number, **about, "by": by}
                note_event(connection, "staff.rejudge", f"board:{held.id}", said, at)
        except psycopg.errors.UniqueViolation:
            raise Invalid(
                f"board {held.name} is already being rejudged", hint="Apply or cancel that one first."
            ) from None
        ordered = self.open(held.name)
        assert ordered is not None
        return ordered

    def estimate(self, board: str, wanted: Wanted, version: int | None) -> tuple[int, list[dict[str, Any]]]:
        """The problem version, and by GPU type how many runs a rejudge would have and how long they took before."""
        held = self._boards.get(board)
        number = self._version(held, version)
        return number, self._all(_ESTIMATE, {**vars(wanted), "board": held.id, "version": number})

    def _version(self, held: Board, version: int | None) -> int:
        """The version to judge by: the board's own, or another one of its problem."""
        number = held.problem_version_id if version is None else version
        if not any(v.id == number and v.name == held.problem_name for v in self._problems.all()):
            raise NotFound(f"version of problem {held.problem_name}", str(number))
        return number

    def preview(
        self, board: str, wanted: Wanted, version: int | None, *, by: str, now: datetime | None = None
    ) -> Rejudging:
        """The state of the open one; if there is none, order one for the selection."""
        found = self.open(board)
        if found is None:
            return self.order(board, wanted, version, by=by, now=now)
        if wanted != Wanted() or version not in (None, found.version):
            raise Invalid(
                f"board {found.board} is already being rejudged",
                hint="Apply or cancel that one first; --preview shows it.",
            )
        return found

    def apply(self, board: str, *, by: str, only: int | None = None, now: datetime | None = None) -> Rejudging:
        """Make the new verdicts count, all together, and their version live. Refused while any run is open.

        A run with an infrastructure failure keeps its old verdict. `only`: the number that the open one must have.
        """
        held, at = self._boards.get(board), or_now(now)
        known = self.open(held.name)
        if known is None:
            raise NotFound("open rejudge of board", held.name)
        if only not in (None, known.id):
            raise Refused("someone else has just decided on this rejudge")
        told = {"rejudging": known.id, "board": held.id, "version": known.version, "now": at}
        with self._pool.transaction() as connection:
            self._decide(connection, "applied", told)
            left = connection.execute(
                b"SELECT count(*) AS n FROM run WHERE rejudging_id = %(rejudging)s AND ended_at IS NULL", told
            ).fetchone()
            if left is None or left["n"]:
                raise Refused(
                    f"{left['n'] if left else 0} of its runs haven't finished yet", hint="Apply it once they have."
                )
            connection.execute(_OUTCOMES.encode(), told)
            connection.execute(_SUPERSEDE.encode(), told)
            connection.execute(
                b"UPDATE run SET counts = true WHERE rejudging_id = %(rejudging)s AND state = 'scored'", told
            )
            connection.execute(b"UPDATE leaderboard SET problem_version_id = %(version)s WHERE id = %(board)s", told)
            said = {"rejudging": known.id, "version": known.version, "changed": known.changed, "by": by}
            note_event(connection, "staff.rejudge_applied", f"board:{held.id}", said, at)
        return known

    def cancel(self, board: str, *, by: str, only: int | None = None, now: datetime | None = None) -> Rejudging:
        """Discard the new verdicts: nothing changes. Queued runs are cancelled now; the daemon kills running jobs.
        `only`: as for `apply`."""
        held, at = self._boards.get(board), or_now(now)
        known = self.open(held.name)
        if known is None:
            raise NotFound("open rejudge of board", held.name)
        if only not in (None, known.id):
            raise Refused("someone else has just decided on this rejudge")
        told = {"rejudging": known.id, "now": at}
        with self._pool.transaction() as connection:
            self._decide(connection, "cancelled", told)
            connection.execute(
                b"SELECT id FROM run WHERE rejudging_id = %(rejudging)s AND ended_at IS NULL ORDER BY id FOR UPDATE",
                told,
            )
            connection.execute(_CANCEL_QUEUED.encode(), told)
            connection.execute(_ASK.encode(), told)
            note_event(connection, "staff.rejudge_cancelled", f"board:{held.id}", {"rejudging": known.id, "by": by}, at)
        return known

    def _decide(self, connection: Connection, state: State, told: Mapping[str, Any]) -> None:
        found = connection.execute(
            b"UPDATE rejudging SET state = %(state)s, decided_at = %(now)s"
            b" WHERE id = %(rejudging)s AND state = 'open' RETURNING id",
            {**told, "state": state},
        ).fetchone()
        if found is None:
            raise Refused("someone else has just decided on this rejudge")
