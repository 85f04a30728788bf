"""Queued runs: whose turn it is, what they need, and how long they will wait."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.errors import UniqueViolation

from kbslurm.domain import placement
from kbslurm.domain.eta import Service
from kbslurm.domain.fairness import SERVICE_FROM
from kbslurm.domain.placement import Backlog, Demand, Rules
from kbslurm.domain.run import AttemptId, AttemptState, OpenAttempt, RunId, Slot, SubmissionId, Work, new_job_name
from kbslurm.store.attempt_rows import attempt_of
from kbslurm.store.claim_sql import ANY_WIDTH, CLAIM, CLAIM_BESIDE_STAFF, CLAIM_BY_POLICY, CLAIM_OF_ONE, conditions
from kbslurm.store.connect import Pool
from kbslurm.store.costs import Costs, sums
from kbslurm.store.problems import Problems
from kbslurm.store.quarantine import AVOID
from kbslurm.store.rows import Rows, row_of

BUDGET_LOCK = 4_927_309
HISTORY = 60
HISTORY_DEPTH = 3000
WAITING = "SELECT gpu, count(*) AS runs FROM run WHERE state = 'queued' AND NOT held GROUP BY gpu ORDER BY gpu"

# Not that of service tokens: they wait for what is free here, and nothing else is opened for them.
_DEMAND = f"""
SELECT run.gpu, lower(b.name) AS board, s.team, count(*) AS waiting, min(run.cost_s * v.ranks) AS least_gpu_s,
    array_agg(DISTINCT run.pinned) FILTER (WHERE run.pinned IS NOT NULL) AS pinned
FROM run JOIN problem_version v ON v.id = run.problem_version_id
JOIN submission s ON s.id = run.submission_id JOIN leaderboard b ON b.id = s.board_id
WHERE run.state = 'queued' AND NOT run.held AND run.fair_at < '{SERVICE_FROM.isoformat()}'::timestamptz
GROUP BY run.gpu, lower(b.name), s.team
"""

_NEXT_UP = """
SELECT run.id, run.attempts, run.submission_id, run.problem_version_id, s.by_staff, s.mode, s.file_name, s.via,
    p.name AS person, p.cluster_account, b.name AS board, b.min_isolation
FROM run JOIN submission s ON s.id = run.submission_id JOIN person p ON p.id = s.person_id
JOIN leaderboard b ON b.id = s.board_id
WHERE run.state = 'queued' AND NOT run.held AND run.gpu = %(gpu)s AND coalesce(run.pinned, %(backend)s) = %(backend)s
ORDER BY run.fair_at, run.id LIMIT 1
"""

_QUEUE = """
SELECT
    (SELECT count(*) FROM run WHERE state = 'queued' AND gpu = %(gpu)s) AS queued,
    (SELECT count(*) FROM run WHERE state IN ('launching', 'running') AND gpu = %(gpu)s) AS open_now,
    (SELECT count(*) FROM run WHERE state = 'queued' AND gpu = %(gpu)s
        AND (fair_at, id) < (%(fair_at)s::timestamptz, %(run)s::bigint)) AS ahead,
    EXISTS (SELECT 1 FROM lease WHERE expires_at > %(now)s) AS led,
    (SELECT coalesce(told.why -> 'held_up' ->> %(gpu)s, told.why -> 'held_boards' -> %(gpu)s ->> mine.board,
            told.why -> 'held_teams' -> %(gpu)s ->> mine.team)
        FROM (SELECT info -> 'overflow' AS why FROM lease
            WHERE name IN ('daemon', 'ticks') AND expires_at > %(now)s ORDER BY name LIMIT 1) told
        LEFT JOIN (
            SELECT lower(b.name) AS board, s.team FROM run JOIN submission s ON s.id = run.submission_id
            JOIN leaderboard b ON b.id = s.board_id WHERE run.id = %(run)s
        ) mine ON true) AS held_up
"""

_SERVICE = f"""
SELECT percentile_cont(ARRAY[0.1, 0.9]) WITHIN GROUP (ORDER BY took_s) AS took, count(*) AS n FROM (
    SELECT extract(epoch FROM ended_at - opened_at)::float8 AS took_s FROM attempt
    WHERE id > (SELECT max(id) FROM attempt) - {HISTORY_DEPTH} AND gpu = %(gpu)s AND state = 'reported'
        AND ended_at > opened_at
    ORDER BY id DESC LIMIT {HISTORY}
) lately
"""


@dataclass(frozen=True, kw_only=True)
class QueueNow:
    """One GPU type's queue: how many runs are queued, hold a slot, and are ahead of the given run.

    `led`: a daemon is leading, so queued runs will be started. `held_up`: why the run waits for home.
    """

    queued: int
    open_now: int
    ahead: int
    led: bool
    held_up: str | None = None


class Queue(Rows):
    """ports.Queue: the queue is `run.state = 'queued'`."""

    def __init__(self, pool: Pool, costs: Costs, problems: Problems) -> None:
        super().__init__(pool)
        self._costs, self._problems = costs, problems

    def claim(self, slots: Sequence[Slot], now: datetime, *, rules: Rules | None = None) -> OpenAttempt | None:
        """One statement. None can also mean that others were just claiming every candidate: ask again later."""
        free = [slot for slot in slots if slot.free > 0]
        if not free:
            return None
        told = {"name": new_job_name(), "key": secrets.token_bytes(32), "nonce": secrets.token_hex(16), "now": now}
        ours: dict[str, Any] = {
            "gpus": [slot.gpu for slot in free],
            "backends": [slot.backend for slot in free],
            "most": [ANY_WIDTH if slot.most is None else slot.most for slot in free],
            "staff_only": [slot.staff_only for slot in free],
        }
        if rules is not None or any(slot.way != "any" or slot.skip or slot.why for slot in free):
            return self._claim_by_policy(free, rules or Rules(), now, {**told, **ours})
        if any(slot.staff_only for slot in free):
            statement = CLAIM_BESIDE_STAFF
        elif len(free) > 1:
            statement = CLAIM
        else:
            statement, ours = CLAIM_OF_ONE, {name: values[0] for name, values in ours.items()}
        found = self._one(statement, {**told, **ours})
        return None if found is None else attempt_of(found)

    def _claim_by_policy(
        self, free: Sequence[Slot], rules: Rules, now: datetime, told: dict[str, Any]
    ) -> OpenAttempt | None:
        """With a budget, claims are serialised, so that each sees what the previous one may cost."""
        told |= conditions(free, rules, now)
        bounded = rules.budget.is_set
        if not bounded or not any(slot.price for slot in free):
            try:
                found = self._one(CLAIM_BY_POLICY, told)
            except UniqueViolation:  # another daemon has just put a run into the same keeper
                return None
            return None if found is None else attempt_of(found)
        with self._pool.transaction() as connection:
            connection.execute(b"SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": BUDGET_LOCK})
            found = row_of(connection, CLAIM_BY_POLICY, told)
        return None if found is None else attempt_of(found)

    def waiting(self) -> Mapping[str, int]:
        return {found["gpu"]: found["runs"] for found in self._all(WAITING)}

    def demand(self, now: datetime) -> Backlog:
        begins, ends = placement.month_of(now)
        found = self._all(_DEMAND)
        spent = self._costs.spent(begins, ends, now)
        return Backlog(
            demand={
                gpu: _demand([row for row in found if row["gpu"] == gpu], self.service(gpu))
                for gpu in {row["gpu"] for row in found}
            },
            pinned=frozenset(name for row in found for name in row["pinned"] or ()),
            spent=sum(row["money"] for row in spent),
            spent_by_board=sums(spent, "board"),
            spent_by_team=sums(spent, "team"),
        )

    def next_up(self, gpu: str, backend: str, now: datetime) -> Work | None:
        found = self._one(_NEXT_UP, {"gpu": gpu, "backend": backend})
        if found is None:
            return None
        run, version = RunId(found["id"]), found["problem_version_id"]
        avoided = self._all(AVOID, {"run": run, "backend": backend, "now": now})
        return Work(
            attempt=OpenAttempt(
                id=AttemptId(0),
                run_id=run,
                number=found["attempts"] + 1,
                name=new_job_name(),
                backend=backend,
                gpu=gpu,
                state=AttemptState.INTENT,
                handle=None,
                opened_at=now,
                deadline_at=None,
            ),
            submission_id=SubmissionId(found["submission_id"]),
            person=found["person"],
            by_staff=found["by_staff"],
            board=found["board"],
            mode=found["mode"],
            file_name=found["file_name"],
            source="",
            problem=self._problems.of_version(version),
            problem_digest="",
            nonce="",
            key=b"",
            secret_seed="",
            avoid_nodes=tuple(row["node"] for row in avoided),
            ranked_min_isolation=found["min_isolation"],
            via=found["via"],
            cluster_account=found["cluster_account"],
        )

    def now(self, gpu: str, now: datetime, *, before: tuple[RunId, datetime] | None = None) -> QueueNow:
        """The state of this GPU type's queue, and how much of it is before a run with this virtual time."""
        run, fair_at = before or (RunId(0), None)
        told = {"gpu": gpu, "now": now, "fair_at": fair_at, "run": run}
        found = self._one(_QUEUE, told)
        assert found is not None
        return QueueNow(**found)

    def service(self, gpu: str) -> Service | None:
        """How long recent runs of this type held their slot; None if there were too few."""
        found = self._one(_SERVICE, {"gpu": gpu})
        if found is None or found["n"] < 3:
            return None
        quick_s, slow_s = found["took"]
        return Service(quick_s=quick_s, slow_s=slow_s)


def _demand(rows: Sequence[dict[str, Any]], service: Service | None) -> Demand:
    """The demand for one GPU type, from its rows by board."""
    return Demand(
        waiting=sum(row["waiting"] for row in rows),
        least_gpu_s=min(row["least_gpu_s"] for row in rows),
        least_by_board=_least(rows, "board"),
        least_by_team=_least(rows, "team"),
        service=service,
    )


def _least(rows: Sequence[dict[str, Any]], by: str) -> dict[str, float]:
    names = {row[by] for row in rows if row[by] is not None}
    return {name: min(row["least_gpu_s"] for row in rows if row[by] == name) for name in names}
