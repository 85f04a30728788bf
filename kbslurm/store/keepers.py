"""Keepers in rows: their life from intent to end, and what history says about how many are worth it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from psycopg.rows import DictRow

from kbslurm.domain.keepers import (
    DAY_S,
    FAILURES,
    HISTORY_S,
    Facts,
    Keeper,
    KeeperEnding,
    KeeperSighting,
    KeeperState,
    new_keeper_name,
)
from kbslurm.domain.run import Handle, KeeperId, KeeperName, Seen
from kbslurm.domain.usage import Held
from kbslurm.store.attempt_rows import OPEN_ATTEMPT
from kbslurm.store.claim_sql import COLD_ONLY, WARMABLE
from kbslurm.store.jsonb import clean
from kbslurm.store.quarantine import QUARANTINED
from kbslurm.store.rows import Rows, row_of

ENOUGH_RUNS = 3
LATELY = 5_000  # so many of the newest runs say how much work comes in: it must not read all there ever were
IN_A_ROW = 64  # more failures than it takes to the longest pause, also where several are ordered at once
OPEN_KEEPER = "state IN ('asked', 'intent', 'ambiguous', 'submitted', 'holding', 'draining')"
ORDER_LOCK = 4_927_311

_KEEPER = f"""k.id, k.name, k.backend, k.gpu, k.state, k.handle, k.opened_at, k.life_s, k.idle_s, k.why, k.asked_by,
    k.submitted_at, k.started_at, k.seen_at, k.expected_at, k.node, k.clean_sweeps, k.swept_at, k.drain_at,
    k.drain_why, k.drain_as, k.looked_at, k.others,
    EXISTS (SELECT FROM attempt a WHERE a.keeper_id = k.id AND a.{OPEN_ATTEMPT}) AS busy,
    greatest(k.started_at, (SELECT max(a.ended_at) FROM attempt a WHERE a.keeper_id = k.id)) AS free_since,
    (SELECT count(*) FROM attempt a WHERE a.keeper_id = k.id AND a.started_at IS NOT NULL)::int AS served"""

_OPEN = f"SELECT {_KEEPER} FROM keeper k WHERE k.{OPEN_KEEPER} ORDER BY k.id"
_ONE = f"SELECT {_KEEPER} FROM keeper k WHERE k.id = %(keeper)s"

_ORDER = f"""
WITH made AS (
    INSERT INTO keeper (name, backend, gpu, life_s, idle_s, why, asked_by, opened_at, state)
    SELECT %(name)s, %(backend)s, %(gpu)s, %(life_s)s, %(idle_s)s, %(why)s, %(by)s, %(now)s, %(state)s
    WHERE (SELECT count(*) FROM keeper WHERE backend = %(backend)s AND gpu = %(gpu)s AND {OPEN_KEEPER}) < %(most)s
    RETURNING id
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'keeper.ordered', 'keeper:' || id, jsonb_build_object('backend', %(backend)s::text, 'gpu', %(gpu)s::text,
        'job', %(name)s::text, 'why', %(why)s::text, 'by', %(by)s::text), %(now)s FROM made
)
SELECT id FROM made
"""

_ACCEPT = """
UPDATE keeper SET state = 'intent', seen_at = %(now)s WHERE id = %(keeper)s AND state = 'asked' RETURNING id
"""

_NOTE_HANDLE = f"""
WITH before AS (
    SELECT id, handle FROM keeper WHERE id = %(keeper)s FOR UPDATE
), noted_keeper AS (
    UPDATE keeper SET handle = %(handle)s, submitted_at = coalesce(submitted_at, %(now)s), clean_sweeps = 0,
        swept_at = NULL, reason = '',
        state = CASE WHEN state IN ('intent', 'ambiguous') THEN 'submitted' ELSE state END
    FROM before WHERE keeper.id = before.id AND keeper.{OPEN_KEEPER}
    RETURNING keeper.id, keeper.backend, keeper.gpu, keeper.handle, before.handle AS handle_before
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'keeper.submitted', 'keeper:' || id, jsonb_build_object('backend', backend, 'gpu', gpu, 'handle', handle),
        %(now)s
    FROM noted_keeper WHERE handle IS DISTINCT FROM handle_before
)
SELECT id FROM noted_keeper
"""

_NOTE_AMBIGUOUS = f"""
UPDATE keeper SET state = 'ambiguous', reason = %(why)s
WHERE id = %(keeper)s AND {OPEN_KEEPER} AND state IN ('intent', 'ambiguous') RETURNING id
"""

_NOTE_CLEAN_SWEEP = f"""
UPDATE keeper SET clean_sweeps = clean_sweeps + 1, swept_at = %(now)s
WHERE id = %(keeper)s AND {OPEN_KEEPER} RETURNING id
"""

_NOTE_RESEND = f"""
UPDATE keeper SET state = 'intent', clean_sweeps = 0, swept_at = NULL, handle = NULL, reason = ''
WHERE id = %(keeper)s AND {OPEN_KEEPER} AND state IN ('intent', 'ambiguous') RETURNING id
"""

_NOTE_WAITING = f"""
UPDATE keeper SET seen_at = %(now)s, clean_sweeps = 0, swept_at = NULL, handle = coalesce(%(handle)s, handle),
    submitted_at = coalesce(submitted_at, %(now)s), expected_at = %(expected_at)s, reason = %(reason)s,
    state = CASE WHEN state IN ('intent', 'ambiguous') THEN 'submitted' ELSE state END
WHERE id = %(keeper)s AND {OPEN_KEEPER} RETURNING id
"""

# One that is on its way out stays so, whatever else is seen of it.
_NOTE_RUNNING = f"""
WITH before AS (
    SELECT id, state FROM keeper WHERE id = %(keeper)s AND {OPEN_KEEPER} FOR UPDATE
), noted_keeper AS (
    UPDATE keeper SET seen_at = %(now)s, clean_sweeps = 0, swept_at = NULL, handle = coalesce(%(handle)s, handle),
        submitted_at = coalesce(submitted_at, %(now)s), started_at = coalesce(started_at, %(started_at)s, %(now)s),
        node = coalesce(%(node)s, node), expected_at = NULL, reason = %(reason)s,
        state = CASE WHEN %(draining)s OR keeper.state = 'draining' OR drain_at IS NOT NULL THEN 'draining'
            ELSE 'holding' END
    FROM before WHERE keeper.id = before.id
    RETURNING keeper.id, keeper.backend, keeper.gpu, keeper.node, keeper.state, before.state AS state_before
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'keeper.' || state, 'keeper:' || id,
        jsonb_build_object('backend', backend, 'gpu', gpu, 'node', node), %(now)s
    FROM noted_keeper WHERE state <> state_before
)
SELECT id FROM noted_keeper
"""

_NOTE_LOOK = """
UPDATE keeper SET looked_at = %(now)s, others = %(others)s, others_why = %(why)s
WHERE backend = %(backend)s AND gpu = %(gpu)s AND state IN ('holding', 'draining')
"""

_DRAIN = f"""
WITH noted_keeper AS (
    UPDATE keeper SET drain_at = %(now)s, drain_as = %(ending)s, drain_why = %(why)s,
        state = CASE WHEN state = 'holding' THEN 'draining' ELSE state END
    WHERE id = %(keeper)s AND {OPEN_KEEPER} AND drain_at IS NULL
    RETURNING id, backend, gpu
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'keeper.draining', 'keeper:' || id, jsonb_build_object('backend', backend, 'gpu', gpu,
        'as', %(ending)s::text, 'why', %(why)s::text), %(now)s FROM noted_keeper
)
SELECT id FROM noted_keeper
"""

# A keeper that we let go ended for that reason, even if its job only shows that it was told to end.
_END = f"""
WITH noted_keeper AS (
    UPDATE keeper SET state = CASE WHEN %(ending)s = 'refused' THEN 'refused' ELSE 'ended' END,
        ending = CASE WHEN drain_as IS NOT NULL AND %(ending)s IN ('cancelled', 'drained', 'failed', 'vanished')
            THEN drain_as ELSE %(ending)s END,
        ended_at = greatest(started_at, coalesce(%(ended_at)s, %(now)s)), reason = %(why)s, seen_at = %(now)s
    WHERE id = %(keeper)s AND {OPEN_KEEPER}
    RETURNING id, backend, gpu, node, ending, started_at, ended_at
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'keeper.ended', 'keeper:' || id, jsonb_build_object('backend', backend, 'gpu', gpu, 'node', node,
        'ending', ending, 'why', %(why)s::text, 'held_s', extract(epoch FROM ended_at - started_at)), %(now)s
    FROM noted_keeper
)
SELECT id FROM noted_keeper
"""

# What keepers held, and what runs used of it, between two moments. A run that never started used nothing.
_HELD = f"""
SELECT k.backend, k.gpu, count(*) AS keepers, count(*) FILTER (WHERE k.{OPEN_KEEPER}) AS open,
    coalesce(sum(span.held_s), 0)::float8 AS held_s, coalesce(sum(used.used_s), 0)::float8 AS used_s,
    coalesce(sum(used.runs), 0)::int AS runs
FROM keeper k
CROSS JOIN LATERAL (SELECT greatest(0, extract(epoch FROM least(coalesce(k.ended_at, %(now)s), %(ends)s)
    - greatest(k.started_at, %(begins)s)))::float8 AS held_s) span
LEFT JOIN LATERAL (
    SELECT count(*) AS runs, sum(greatest(0, extract(epoch FROM
        least(coalesce(a.ended_at, %(now)s), coalesce(k.ended_at, %(now)s), %(ends)s)
        - greatest(a.started_at, k.started_at, %(begins)s))))::float8 AS used_s
    FROM attempt a WHERE a.keeper_id = k.id AND a.started_at IS NOT NULL
        AND a.started_at < %(ends)s AND coalesce(a.ended_at, %(now)s) > %(begins)s
) used ON true
WHERE k.started_at IS NOT NULL AND k.started_at < %(ends)s AND coalesce(k.ended_at, %(now)s) > %(begins)s
    AND (%(backend)s::text IS NULL OR k.backend = %(backend)s) AND (%(gpu)s::text IS NULL OR k.gpu = %(gpu)s)
GROUP BY k.backend, k.gpu ORDER BY k.backend, k.gpu
"""

_SHUNNED = f"SELECT node FROM ({QUARANTINED}) q WHERE q.backend = %(backend)s ORDER BY node"

_FACTS = f"""
SELECT
    (SELECT count(*) FROM run JOIN submission s ON s.id = run.submission_id JOIN leaderboard b ON b.id = s.board_id
        WHERE run.gpu = %(gpu)s AND run.state = 'queued' AND NOT run.held
            AND coalesce(run.pinned, %(backend)s) = %(backend)s AND {WARMABLE})::int AS waiting,
    (SELECT count(*) FROM attempt a WHERE a.backend = %(backend)s AND a.gpu = %(gpu)s AND a.{OPEN_ATTEMPT}
        AND a.keeper_id IS NULL AND a.started_at IS NULL AND a.gpus = 1)::int AS sent,
    (SELECT count(*) FROM run JOIN submission s ON s.id = run.submission_id JOIN leaderboard b ON b.id = s.board_id
        WHERE run.id > (SELECT max(id) FROM run) - {LATELY} AND run.gpu = %(gpu)s AND run.queued_at > %(since)s
            AND coalesce(run.pinned, %(backend)s) = %(backend)s AND NOT ({COLD_ONLY})
            AND NOT run.held AND run.state <> 'cancelled')::int AS came,
    took.run_s, took.runs,
    (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY waited_s) FROM (
        SELECT greatest(0, extract(epoch FROM a.started_at - a.submitted_at))::float8 AS waited_s FROM attempt a
        WHERE a.id > (SELECT max(id) FROM attempt) - 3000 AND a.backend = %(backend)s AND a.gpu = %(gpu)s
            AND a.keeper_id IS NULL AND a.started_at > %(now)s - interval '10 minutes' AND a.submitted_at IS NOT NULL
        ORDER BY a.id DESC LIMIT 20) lately) AS cold_s,
    went.left_as, went.left_at, went.left_why,
    (SELECT count(DISTINCT opened_at) FILTER (WHERE failed AND id > worked_id AND id >= asked_id)::int FROM (
        SELECT id, opened_at, failed, coalesce(max(id) FILTER (WHERE worked) OVER (), 0) AS worked_id,
            coalesce(max(id) FILTER (WHERE asked_by IS NOT NULL) OVER (), 0) AS asked_id
        FROM (
            SELECT k.id, k.opened_at, k.asked_by,
                NOT served.any AND k.drain_at IS NULL AND k.ending = ANY(%(failures)s) AS failed,
                served.any OR (k.started_at IS NOT NULL AND k.ending IN ('idle', 'life', 'drained', 'gave_back'))
                    AS worked
            FROM keeper k CROSS JOIN LATERAL (
                SELECT EXISTS (SELECT FROM attempt a WHERE a.keeper_id = k.id AND a.started_at IS NOT NULL) AS any
            ) served
            WHERE k.backend = %(backend)s AND k.gpu = %(gpu)s ORDER BY k.id DESC LIMIT {IN_A_ROW}
        ) lately) row) AS failures
FROM (
    SELECT max(coalesce(drain_as, ending)) AS left_as, max(coalesce(drain_at, ended_at)) AS left_at,
        coalesce(max(reason), '') AS left_why
    FROM (
        SELECT k.* FROM keeper k WHERE k.backend = %(backend)s AND k.gpu = %(gpu)s
            AND coalesce(k.drain_as, k.ending) NOT IN ('idle', 'life', 'drained')
        ORDER BY coalesce(k.drain_at, k.ended_at) DESC LIMIT 1) last
) went, (
    SELECT avg(took_s)::float8 AS run_s, count(*) AS runs FROM (
        SELECT extract(epoch FROM a.ended_at - a.started_at)::float8 AS took_s FROM attempt a
        WHERE a.id > (SELECT max(id) FROM attempt) - 3000 AND a.backend = %(backend)s AND a.gpu = %(gpu)s
            AND a.state = 'reported' AND a.ended_at > a.started_at
        ORDER BY a.id DESC LIMIT 60) lately
) took
"""


class Keepers(Rows):
    """ports.Keepers, and what hosts see of them."""

    def open(self) -> Sequence[Keeper]:
        return [_keeper(row) for row in self._all(_OPEN)]

    def get(self, keeper: KeeperId) -> Keeper | None:
        """One keeper, open or not."""
        row = self._one(_ONE, {"keeper": keeper})
        return None if row is None else _keeper(row)

    def facts(self, backend: str, gpu: str, now: datetime) -> Facts:
        since = now - timedelta(seconds=HISTORY_S)
        told = {"backend": backend, "gpu": gpu, "now": now, "since": since, "failures": sorted(FAILURES)}
        row = self._one(_FACTS, told)
        assert row is not None
        held = next(iter(self.held(now - timedelta(seconds=DAY_S), now, now, backend=backend, gpu=gpu)), None)
        return Facts(
            waiting=row["waiting"],
            sent=row["sent"],
            run_s=row["run_s"] if row["runs"] >= ENOUGH_RUNS else None,
            came=row["came"],
            cold_s=row["cold_s"],
            left_as=None if row["left_as"] is None else KeeperEnding(row["left_as"]),
            left_at=row["left_at"],
            left_why=row["left_why"],
            failures=row["failures"],
            held_s=held.held_s if held else 0.0,
            idle_s=held.idle_s if held else 0.0,
            shunned=self.shunned(backend, now),
        )

    def shunned(self, backend: str, now: datetime) -> tuple[str, ...]:
        return tuple(row["node"] for row in self._all(_SHUNNED, {"backend": backend, "now": now}))

    def held(
        self, begins: datetime, ends: datetime, now: datetime, *, backend: str | None = None, gpu: str | None = None
    ) -> list[Held]:
        """What keepers held between these times, by place and GPU type."""
        told = {"begins": begins, "ends": min(ends, now), "now": now, "backend": backend, "gpu": gpu}
        return [Held(**row) for row in self._all(_HELD, told)]

    def order(
        self,
        backend: str,
        gpu: str,
        *,
        life_s: float,
        idle_s: float,
        most: int,
        why: str,
        now: datetime,
        by: str | None = None,
    ) -> Keeper | None:
        told = {
            "name": new_keeper_name(),
            "backend": backend,
            "gpu": gpu,
            "life_s": life_s,
            "idle_s": idle_s,
            "most": most,
            "why": clean(why),
            "by": by,
            "state": KeeperState.INTENT if by is None else KeeperState.ASKED,
            "now": now,
        }
        with self._pool.transaction() as connection:
            # One at a time, so that each sees the others' and there are never more than allowed.
            connection.execute(b"SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": ORDER_LOCK})
            made = row_of(connection, _ORDER, told)
            row = None if made is None else row_of(connection, _ONE, {"keeper": made["id"]})
        return None if row is None else _keeper(row)

    def accept(self, keeper: Keeper, now: datetime) -> bool:
        return self._noted(_ACCEPT, keeper, now)

    def note_handle(self, keeper: Keeper, handle: Handle, now: datetime) -> bool:
        return self._noted(_NOTE_HANDLE, keeper, now, handle=handle)

    def note_ambiguous(self, keeper: Keeper, why: str, now: datetime) -> bool:
        return self._noted(_NOTE_AMBIGUOUS, keeper, now, why=clean(why))

    def note_clean_sweep(self, keeper: Keeper, now: datetime) -> bool:
        return self._noted(_NOTE_CLEAN_SWEEP, keeper, now)

    def note_resend(self, keeper: Keeper, now: datetime) -> bool:
        return self._noted(_NOTE_RESEND, keeper, now)

    def note_seen(self, keeper: Keeper, sighting: KeeperSighting, now: datetime) -> bool:
        seen = {
            "handle": sighting.handle,
            "node": sighting.node,
            "started_at": sighting.started_at,
            "expected_at": sighting.expected_at,
            "reason": clean(sighting.reason),
            "draining": sighting.draining,
        }
        if sighting.seen is Seen.WAITING:
            return self._noted(_NOTE_WAITING, keeper, now, **seen)
        if sighting.seen is Seen.RUNNING:
            return self._noted(_NOTE_RUNNING, keeper, now, **seen)
        return True

    def note_look(self, backend: str, gpu: str, others: bool | None, why: str, now: datetime) -> None:
        said = "unknown" if others is None else "yes" if others else "no"
        self._do(_NOTE_LOOK, {"backend": backend, "gpu": gpu, "others": said, "why": clean(why), "now": now})

    def drain(self, keeper: KeeperId, ending: KeeperEnding, why: str, now: datetime) -> bool:
        told = {"keeper": keeper, "ending": ending.value, "why": clean(why), "now": now}
        return self._one(_DRAIN, told) is not None

    def end(
        self, keeper: Keeper, ending: KeeperEnding, why: str, now: datetime, *, ended_at: datetime | None = None
    ) -> bool:
        return self._noted(_END, keeper, now, ending=ending.value, why=clean(why), ended_at=ended_at)

    def _noted(self, statement: str, keeper: Keeper, now: datetime, **told: Any) -> bool:
        return self._one(statement, {"keeper": keeper.id, "now": now, **told}) is not None


def _keeper(row: DictRow) -> Keeper:
    handle, drained = row["handle"], row["drain_as"]
    known = {
        **row,
        "id": KeeperId(row["id"]),
        "name": KeeperName(row["name"]),
        "state": KeeperState(row["state"]),
        "handle": None if handle is None else Handle(handle),
        "drain_as": None if drained is None else KeeperEnding(drained),
    }
    return Keeper(**known)
