"""Attempts from claim to end: what was observed, and how they are given up."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, assert_never

from kbslurm.domain.finals import FINAL, staged
from kbslurm.domain.run import (
    AttemptId,
    Ending,
    Handle,
    OpenAttempt,
    RunState,
    Seen,
    Sighting,
    Slot,
    SubmissionId,
    Work,
    tries_owed,
)
from kbslurm.errors import NotFound
from kbslurm.store.attempt_rows import ATTEMPT_COLUMNS, LIVE, OPEN_ATTEMPT, attempt_of, fence
from kbslurm.store.broken_off import CANCELLED_BY_ITS_AUTHOR
from kbslurm.store.claim_sql import ANY_WIDTH
from kbslurm.store.connect import Pool
from kbslurm.store.finals import Finals
from kbslurm.store.jsonb import clean
from kbslurm.store.problems import Problems
from kbslurm.store.quarantine import AVOID
from kbslurm.store.rows import Rows
from kbslurm.store.seeds import derived_seed

OPEN_ATTEMPTS = f"""
SELECT {ATTEMPT_COLUMNS}, run.cancel_at FROM attempt a JOIN run ON run.id = a.run_id
WHERE a.{OPEN_ATTEMPT} ORDER BY a.id
"""

# Attempts that seemed to end without a report: if one arrives later, it is kept as stale.
LATELY_DEAD = f"""
SELECT {ATTEMPT_COLUMNS}, run.cancel_at FROM attempt a JOIN run ON run.id = a.run_id
WHERE a.state = 'dead' AND a.node IS NOT NULL AND a.ended_at > %(since)s AND a.ending <> 'bad_report'
    AND NOT EXISTS (SELECT 1 FROM stale_report s WHERE s.attempt_id = a.id)
ORDER BY a.id
"""

WORK = f"""
SELECT {ATTEMPT_COLUMNS}, run.cancel_at, a.key, a.nonce, run.secret_seed, run.problem_version_id,
    s.id AS submission_id, s.by_staff, s.mode, s.file_name, s.source, s.via, s.benchmark,
    p.name AS person, p.cluster_account, b.name AS board, b.min_isolation
FROM attempt a
JOIN run ON run.id = a.run_id
JOIN submission s ON s.id = run.submission_id
JOIN person p ON p.id = s.person_id
JOIN leaderboard b ON b.id = s.board_id
WHERE a.id = %(attempt)s
"""

# Storing the same handle again, as after a lost answer, makes no second event.
NOTE_HANDLE = f"""
WITH before AS (
    SELECT id, handle FROM attempt WHERE id = %(attempt)s FOR UPDATE
), noted_attempt AS (
    UPDATE attempt SET handle = %(handle)s, deadline_at = %(deadline_at)s, clean_sweeps = 0, swept_at = NULL,
        submitted_at = coalesce(submitted_at, %(now)s), reason = '', telemetry = telemetry - 'waits',
        state = CASE WHEN state = 'running' THEN state ELSE 'submitted' END
    FROM before
    WHERE attempt.id = before.id AND number = %(number)s AND {OPEN_ATTEMPT}
    RETURNING attempt.id, run_id, number, backend, attempt.handle, before.handle AS handle_before
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'attempt.submitted', 'run:' || run_id,
        jsonb_build_object('attempt', number, 'backend', backend, 'handle', handle), %(now)s
    FROM noted_attempt WHERE handle IS DISTINCT FROM handle_before
)
SELECT id FROM noted_attempt
"""

NOTE_AMBIGUOUS = f"""
WITH noted_attempt AS (
    UPDATE attempt SET state = 'ambiguous', reason = %(why)s, telemetry = telemetry - 'waits'
    WHERE id = %(attempt)s AND number = %(number)s AND {OPEN_ATTEMPT}
    RETURNING id, run_id, number, backend
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'attempt.ambiguous', 'run:' || run_id,
        jsonb_build_object('attempt', number, 'backend', backend, 'why', %(why)s::text), %(now)s
    FROM noted_attempt
)
SELECT id FROM noted_attempt
"""

# Only attempts that haven't started and whose run fits one of these slots: otherwise it would wait in vain.
WITHDRAW = f"""
WITH wanted AS (
    UPDATE attempt SET withdraw_at = %(now)s FROM run
    WHERE attempt.id = %(attempt)s AND attempt.number = %(number)s AND attempt.state = 'submitted'
        AND attempt.started_at IS NULL AND attempt.withdraw_at IS NULL AND run.id = attempt.run_id
        AND run.attempts = attempt.number AND run.cancel_at IS NULL AND run.pinned IS NULL AND run.{LIVE}
        AND EXISTS (
            SELECT FROM unnest(%(backends)s::text[], %(most)s::int[], %(staff_only)s::bool[])
                AS home(backend, most, staff_only)
            WHERE (SELECT v.ranks FROM problem_version v WHERE v.id = run.problem_version_id) <= home.most
                AND (run.by_staff OR NOT home.staff_only)
                AND NOT EXISTS (SELECT FROM attempt tried WHERE tried.run_id = run.id AND tried.state = 'refused'
                    AND tried.backend = home.backend))
    RETURNING attempt.id, attempt.run_id, attempt.number, attempt.backend
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'attempt.withdrawing', 'run:' || run_id,
        jsonb_build_object('attempt', number, 'backend', backend, 'why', %(why)s::text), %(now)s
    FROM wanted
)
SELECT id FROM wanted
"""

NOTE_CLEAN_SWEEP = f"""
UPDATE attempt SET clean_sweeps = clean_sweeps + 1, swept_at = %(now)s
WHERE id = %(attempt)s AND number = %(number)s AND {OPEN_ATTEMPT}
RETURNING id
"""

NOTE_RESEND = f"""
WITH noted_attempt AS (
    UPDATE attempt SET state = 'intent', clean_sweeps = 0, swept_at = NULL, handle = NULL, reason = '',
        telemetry = telemetry - 'waits'
    WHERE id = %(attempt)s AND number = %(number)s AND {OPEN_ATTEMPT}
    RETURNING id, run_id, number, backend
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'attempt.resent', 'run:' || run_id, jsonb_build_object('attempt', number, 'backend', backend), %(now)s
    FROM noted_attempt
)
SELECT id FROM noted_attempt
"""

# After a clock jump that jobs didn't experience. In ID order, like all writers of many rows.
PUT_OFF_DEADLINES = f"""
UPDATE attempt SET deadline_at = deadline_at + make_interval(secs => %(by_s)s)
WHERE id IN (SELECT id FROM attempt WHERE {OPEN_ATTEMPT} AND deadline_at IS NOT NULL ORDER BY id FOR UPDATE)
RETURNING id
"""

NOTE_WAITING = f"""
UPDATE attempt SET seen_at = %(now)s, clean_sweeps = 0, swept_at = NULL, handle = coalesce(%(handle)s, handle),
    telemetry = telemetry - 'over_at', submitted_at = coalesce(submitted_at, %(now)s), node = coalesce(%(node)s, node),
    state = CASE WHEN state = 'running' THEN state ELSE 'submitted' END
WHERE id = %(attempt)s AND number = %(number)s AND {OPEN_ATTEMPT}
RETURNING id
"""

# Updates within one statement run in any order; the lock keeps the order run before attempt here too.
NOTE_RUNNING = f"""
WITH locked AS MATERIALIZED (
    SELECT id FROM run WHERE id = %(run)s FOR NO KEY UPDATE
), moved AS (
    UPDATE run SET state = 'running' FROM locked
    WHERE run.id = locked.id AND attempts = %(number)s AND state = 'launching'
    RETURNING run.id, submission_id, gpu
), noted_attempt AS (
    UPDATE attempt SET state = 'running', seen_at = %(now)s, clean_sweeps = 0, swept_at = NULL,
        handle = coalesce(%(handle)s, handle), node = coalesce(%(node)s, node),
        submitted_at = coalesce(submitted_at, %(now)s), started_at = coalesce(%(started_at)s, started_at, %(now)s),
        telemetry = telemetry - 'over_at'
    FROM locked
    WHERE attempt.id = %(attempt)s AND run_id = locked.id AND number = %(number)s AND {OPEN_ATTEMPT}
    RETURNING attempt.id, number, backend, node, started_at
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'run.running', 'run:' || moved.id, jsonb_build_object('submission', moved.submission_id, 'gpu', moved.gpu,
        'attempt', a.number, 'backend', a.backend, 'node', a.node), %(now)s
    FROM moved, noted_attempt a
)
SELECT id FROM noted_attempt
"""

NOTE_TOLD = f"""
UPDATE attempt SET telemetry = attempt.telemetry || told.said
FROM unnest(%(attempts)s::bigint[], %(said)s::text[]::jsonb[]) AS told(id, said)
WHERE attempt.id = told.id AND {OPEN_ATTEMPT}
"""

# Stores an observed end; whether it ends the attempt is decided by evidence, elsewhere.
NOTE_ENDED = f"""
UPDATE attempt SET seen_at = %(now)s, handle = coalesce(%(handle)s, handle), node = coalesce(%(node)s, node),
    started_at = coalesce(%(started_at)s, started_at), ended_at = coalesce(%(ended_at)s, ended_at),
    exit_code = coalesce(%(exit_code)s, exit_code), reason = %(reason)s, clean_sweeps = 0, swept_at = NULL,
    telemetry = jsonb_build_object('over_at', %(now)s::timestamptz) || telemetry
WHERE id = %(attempt)s AND number = %(number)s AND {OPEN_ATTEMPT}
RETURNING id
"""

KEEP_STALE = """
WITH kept AS (
    INSERT INTO stale_report (attempt_id, report, why, at) VALUES (%(attempt)s, %(report)s, %(why)s, %(now)s)
)
INSERT INTO event (kind, subject, data, at)
VALUES ('report.stale', 'run:' || %(run)s::bigint,
    jsonb_build_object('attempt', %(number)s::int, 'why', %(why)s::text), %(now)s)
"""

# The cancel mark is read from the run's newest version, under its lock: a cancelled run is never queued again. An
# attempt that was refused permanently isn't an infrastructure failure and isn't counted as one.
GIVE_UP = f"""
WITH owed AS MATERIALIZED (
    SELECT (SELECT count(*) FROM attempt tried WHERE tried.run_id = %(run)s AND tried.state <> 'refused'
            AND tried.ending IS DISTINCT FROM 'withdrawn') < %(owed)s
        OR EXISTS (SELECT FROM unnest(%(elsewhere)s::text[]) AS other(backend)
        WHERE NOT EXISTS (SELECT FROM attempt tried WHERE tried.run_id = %(run)s AND tried.backend = other.backend
            AND (tried.state = 'refused' OR tried.id = %(attempt)s)))
        AND NOT EXISTS (SELECT FROM run WHERE id = %(run)s AND pinned IS NOT NULL) AS another
), moved AS (
    UPDATE run SET
        state = CASE WHEN cancel_at IS NOT NULL THEN 'cancelled' WHEN another THEN 'queued' ELSE 'failed' END,
        ended_at = CASE WHEN cancel_at IS NULL AND another THEN NULL ELSE %(now)s::timestamptz END,
        reason = %(why)s, broke_off = {CANCELLED_BY_ITS_AUTHOR}
    FROM owed WHERE id = %(run)s AND attempts = %(number)s AND {LIVE}
    RETURNING id, state, submission_id, gpu, person_id
), closed AS (
    UPDATE attempt SET state = CASE WHEN %(ending)s = 'refused' THEN 'refused'
            WHEN moved.state = 'cancelled' OR %(ending)s = 'withdrawn' THEN 'cancelled' ELSE 'dead' END,
        ending = %(ending)s, ended_at = coalesce(attempt.ended_at, %(now)s), reason = %(why)s
    FROM moved WHERE attempt.id = %(attempt)s AND attempt.run_id = moved.id
    RETURNING attempt.id, attempt.number, attempt.backend, attempt.node
), judged AS (
    INSERT INTO verdict (run_id, attempt_id, name, reason, ranked, at)
    SELECT moved.id, closed.id, 'infrastructure', %(why)s, false, %(now)s
    FROM moved, closed WHERE moved.state = 'failed'
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT CASE moved.state WHEN 'queued' THEN 'run.requeued' ELSE 'run.' || moved.state END, 'run:' || moved.id,
        jsonb_build_object('submission', moved.submission_id, 'gpu', moved.gpu, 'person', moved.person_id,
            'attempt', closed.number, 'backend', closed.backend, 'node', closed.node, 'ending', %(ending)s::text,
            'why', %(why)s::text),
        %(now)s
    FROM moved, closed
)
SELECT state FROM moved
"""

END_CANCELLED = f"""
WITH moved AS (
    UPDATE run SET state = 'cancelled', cancel_at = coalesce(cancel_at, %(now)s), ended_at = %(now)s,
        broke_off = {CANCELLED_BY_ITS_AUTHOR}
    WHERE id = %(run)s AND attempts = %(number)s AND {LIVE}
    RETURNING id, submission_id, gpu, person_id, cancel_by
), closed AS (
    UPDATE attempt SET state = 'cancelled', ending = 'cancelled', ended_at = coalesce(attempt.ended_at, %(now)s)
    FROM moved WHERE attempt.id = %(attempt)s AND attempt.run_id = moved.id
    RETURNING attempt.number, attempt.backend
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'run.cancelled', 'run:' || moved.id, jsonb_build_object('submission', moved.submission_id, 'gpu', moved.gpu,
        'person', moved.person_id, 'attempt', closed.number, 'backend', closed.backend, 'by', moved.cancel_by), %(now)s
    FROM moved, closed
)
SELECT id FROM moved
"""


class Attempts(Rows):
    """ports.Attempts: every write is fenced by the attempt's number."""

    def __init__(self, pool: Pool, problems: Problems, finals: Finals) -> None:
        super().__init__(pool)
        self._problems, self._finals = problems, finals

    def work(self, attempt: AttemptId) -> Work:
        """Everything for one attempt. Its secret seed is its own: what an earlier attempt saw doesn't help a later
        one."""
        found = self._one(WORK, {"attempt": attempt})
        if found is None:
            raise NotFound("attempt", str(attempt))
        opened = attempt_of(found)
        avoided = self._all(AVOID, {"run": opened.run_id, "backend": opened.backend, "now": opened.opened_at})
        version = found["problem_version_id"]
        problem = self._problems.of_version(version).for_gpu(opened.gpu)
        if found["via"] == FINAL:
            problem = staged(problem, self._finals.rivals_of_run(opened.run_id))
        return Work(
            attempt=opened,
            submission_id=SubmissionId(found["submission_id"]),
            person=found["person"],
            by_staff=found["by_staff"],
            board=found["board"],
            mode=found["mode"],
            file_name=found["file_name"],
            source=found["source"],
            problem=problem,
            problem_digest=self._problems.digest(version),
            nonce=found["nonce"],
            key=bytes(found["key"]),
            secret_seed=derived_seed(found["secret_seed"], str(opened.number)),
            avoid_nodes=tuple(row["node"] for row in avoided),
            ranked_min_isolation=found["min_isolation"],
            via=found["via"],
            cluster_account=found["cluster_account"],
            benchmark=found["benchmark"],
        )

    def open(self) -> Sequence[OpenAttempt]:
        return [attempt_of(found) for found in self._all(OPEN_ATTEMPTS)]

    def lately_dead(self, since: datetime) -> Sequence[OpenAttempt]:
        return [attempt_of(found) for found in self._all(LATELY_DEAD, {"since": since})]

    def note_handle(self, attempt: OpenAttempt, handle: Handle, deadline_at: datetime, now: datetime) -> bool:
        return self._fenced(NOTE_HANDLE, attempt, now, handle=handle, deadline_at=deadline_at)

    def note_ambiguous(self, attempt: OpenAttempt, why: str, now: datetime) -> bool:
        return self._fenced(NOTE_AMBIGUOUS, attempt, now, why=clean(why))

    def note_clean_sweep(self, attempt: OpenAttempt, now: datetime) -> bool:
        return self._fenced(NOTE_CLEAN_SWEEP, attempt, now)

    def note_resend(self, attempt: OpenAttempt, now: datetime) -> bool:
        return self._fenced(NOTE_RESEND, attempt, now)

    def put_off_deadlines(self, by_s: float) -> int:
        return len(self._all(PUT_OFF_DEADLINES, {"by_s": by_s}))

    def note_seen(self, attempt: OpenAttempt, sighting: Sighting, now: datetime) -> bool:
        """RUNNING advances the run; ENDED stores what was seen, and when first, but leaves the attempt open; ABSENT and
        UNKNOWN do nothing."""
        seen = {
            "handle": sighting.handle,
            "node": sighting.node,
            "started_at": sighting.started_at,
            "ended_at": sighting.ended_at,
            "exit_code": sighting.exit_code,
            "reason": clean(sighting.reason),
        }
        match sighting.seen:
            case Seen.WAITING:
                return self._fenced(NOTE_WAITING, attempt, now, **seen)
            case Seen.RUNNING:
                return self._fenced(NOTE_RUNNING, attempt, now, **seen)
            case Seen.ENDED:
                return self._fenced(NOTE_ENDED, attempt, now, **seen)
            case Seen.ABSENT | Seen.UNKNOWN:
                return True
            case _:
                assert_never(sighting.seen)

    def note_told(self, told: Mapping[AttemptId, Mapping[str, Any]]) -> None:
        if told:
            said = [json.dumps(one) for one in told.values()]
            self._do(NOTE_TOLD, {"attempts": list(told), "said": said})

    def withdraw(self, attempt: OpenAttempt, slots: Sequence[Slot], why: str, now: datetime) -> bool:
        wanted = {
            "attempt": attempt.id,
            "number": attempt.number,
            "backends": [slot.backend for slot in slots],
            "most": [ANY_WIDTH if slot.most is None else slot.most for slot in slots],
            "staff_only": [slot.staff_only for slot in slots],
            "why": why,
            "now": now,
        }
        return self._one(WITHDRAW, wanted) is not None

    def give_up(
        self, attempt: OpenAttempt, ending: Ending, why: str, now: datetime, *, elsewhere: Sequence[str] = ()
    ) -> RunState | None:
        told = {
            **fence(attempt),
            "ending": ending.value,
            "why": clean(why),
            "owed": tries_owed(ending),
            "elsewhere": list(elsewhere),
            "now": now,
        }
        found = self._one(GIVE_UP, told)
        return None if found is None else RunState(found["state"])

    def keep_stale(self, attempt: OpenAttempt, report: bytes, why: str, now: datetime) -> None:
        told = {**fence(attempt), "report": report, "why": clean(why), "now": now}
        with self._pool.statement() as connection:
            connection.execute(KEEP_STALE.encode(), told)

    def end_cancelled(self, attempt: OpenAttempt, now: datetime) -> bool:
        return self._fenced(END_CANCELLED, attempt, now)
