"""The claim statements: for one slot, for several, with staff-only slots, and with the placement policy."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from kbslurm.domain import placement
from kbslurm.domain.drift import SHADOW
from kbslurm.domain.fairness import SERVICE_FROM
from kbslurm.domain.finals import FINAL
from kbslurm.domain.measure import CALIBRATION
from kbslurm.domain.placement import Rules
from kbslurm.domain.run import Slot
from kbslurm.store.attempt_rows import ATTEMPT_COLUMNS, OPEN_ATTEMPT
from kbslurm.store.costs import MONEY
from kbslurm.store.quarantine import INFRASTRUCTURE, QUARANTINED

OF_THE_SERVICE = [CALIBRATION, FINAL, SHADOW]

# Runs that never go into a keeper: what everything else is compared with, what needs several GPUs, and what a host or
# the board wants to be a job of its own. A run that was in a keeper before is started the other way the next time, and
# so is one that failed on a node, since only a job of its own can leave that node out.
COLD_ONLY = f"""(run.cold OR b.cold OR s.via IN ('{CALIBRATION}', '{FINAL}')
            OR (SELECT v.ranks FROM problem_version v WHERE v.id = run.problem_version_id) > 1)"""
WARMABLE = f"""(NOT {COLD_ONLY} AND (run.attempts = 0 OR NOT EXISTS (SELECT FROM attempt tried
            WHERE tried.run_id = run.id
                AND (tried.keeper_id IS NOT NULL OR tried.state = 'dead' AND tried.{INFRASTRUCTURE}))))"""

# One slot: the first unlocked row of the partial index. Several: a few candidates per slot are read without locks,
# then the first unlocked one in fair order is locked, for the first slot that it fits; locking while picking would
# hide every other slot's best run from concurrent claims. Staff-only slots look only at staff's runs, through their
# own index. A run that needs more GPUs than a slot has, or that the backend has refused permanently, is skipped: it
# waits for another place.
CANDIDATES = 8

ANY_WIDTH = (1 << 31) - 1

_FITS = """state = 'queued' AND NOT held AND gpu = {gpu}
            AND (SELECT v.ranks FROM problem_version v WHERE v.id = run.problem_version_id) <= {most}
            AND (attempts = 0 OR NOT EXISTS (SELECT FROM attempt tried WHERE tried.run_id = run.id
                AND tried.state = 'refused' AND tried.backend = {backend}))
            AND (pinned IS NULL OR pinned = {backend})"""

_FITS_SLOT = _FITS.format(gpu="slot.gpu", most="slot.most", backend="slot.backend")

_PICKED_OF_ONE = f"""
WITH picked AS MATERIALIZED (
    SELECT id, %(backends)s::text AS backend FROM run
        WHERE {_FITS.format(gpu="%(gpus)s", most="%(most)s", backend="%(backends)s")}
    ORDER BY gpu, fair_at, id LIMIT 1 FOR UPDATE SKIP LOCKED
)"""

_SLOTS = """
WITH slot AS MATERIALIZED (
    SELECT * FROM unnest(%(gpus)s::text[], %(backends)s::text[], %(most)s::int[], %(staff_only)s::bool[])
        WITH ORDINALITY AS s(gpu, backend, most, staff_only, place)
)"""

_CANDIDATES = f"""
    SELECT q.id, q.fair_at, slot.backend, slot.place
    FROM slot CROSS JOIN LATERAL (
        SELECT id, fair_at FROM run
        WHERE {_FITS_SLOT} AND NOT slot.staff_only
        ORDER BY gpu, fair_at, id LIMIT {CANDIDATES}
    ) q"""

_STAFFS_CANDIDATES = f"""
    UNION ALL
    SELECT q.id, q.fair_at, slot.backend, slot.place
    FROM slot CROSS JOIN LATERAL (
        SELECT id, fair_at FROM run
        WHERE {_FITS_SLOT} AND slot.staff_only AND by_staff
        ORDER BY gpu, fair_at, id LIMIT {CANDIDATES}
    ) q"""

_PICKED = """, candidate AS MATERIALIZED ({}
), picked AS MATERIALIZED (
    SELECT run.id, c.backend FROM candidate c JOIN run ON run.id = c.id
    WHERE run.state = 'queued' ORDER BY c.fair_at, c.id, c.place LIMIT 1 FOR UPDATE OF run SKIP LOCKED
)"""


def _claimed(columns: str = "", values: str = "", also: str = "") -> str:
    """The picked run's new attempt and its event; with a policy, its slot adds more columns. Without one the budgets
    also need the most that the attempt could use, for what ends without having been seen to start."""
    return f""", moved AS (
    UPDATE run SET state = 'launching', attempts = attempts + 1, reason = ''
    WHERE id = (SELECT id FROM picked) AND state = 'queued'
    RETURNING id, attempts, gpu, submission_id, problem_version_id, cost_s, (SELECT backend FROM picked) AS backend
), opened AS (
    INSERT INTO attempt (run_id, number, name, backend, gpu, key, nonce, opened_at, gpus, reserve_s{columns})
    SELECT id, attempts, %(name)s, moved.backend, moved.gpu, %(key)s, %(nonce)s, %(now)s,
        (SELECT v.ranks FROM problem_version v WHERE v.id = moved.problem_version_id), moved.cost_s{values}
    FROM moved{also}
    RETURNING *
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'run.launching', 'run:' || id, jsonb_build_object('submission', submission_id, 'attempt', attempts,
        'backend', backend, 'gpu', gpu, 'job', %(name)s::text), %(now)s
    FROM moved
)
SELECT {ATTEMPT_COLUMNS}, NULL::timestamptz AS cancel_at FROM opened a
"""


# With a policy: a slot's conditions for runs that aren't pinned to it, and for their maximum cost.
# Calibrations, finals, rejudges and second measurements only go to their board's own class of GPU; the runs of service
# tokens go nowhere else than home.
_PLACED_SLOTS = """
WITH slot AS MATERIALIZED (
    SELECT * FROM unnest(%(gpus)s::text[], %(backends)s::text[], %(most)s::int[], %(staff_only)s::bool[],
        %(overflow)s::bool[], %(queued_before)s::timestamptz[], %(pinned_only)s::bool[], %(leaderboard)s::text[],
        %(price)s::float8[], %(gpu_class)s::text[], %(why)s::text[], %(way)s::text[], %(keeper)s::bigint[],
        %(fits_s)s::float8[], %(skip)s::int[])
        WITH ORDINALITY AS s(gpu, backend, most, staff_only, overflow, queued_before, pinned_only, leaderboard, price,
            gpu_class, why, way, keeper, fits_s, skip, place)
    WHERE keeper IS NULL OR EXISTS (SELECT FROM keeper k WHERE k.id = s.keeper AND k.state = 'holding'
        AND k.drain_at IS NULL
        AND NOT EXISTS (SELECT FROM ({quarantined}) q WHERE q.backend = k.backend AND q.node = k.node))
        AND NOT EXISTS (SELECT FROM attempt a WHERE a.keeper_id = s.keeper
        AND a.{open_attempt})
), spent AS (
    SELECT coalesce(sum({money}), 0) AS money FROM attempt a
    WHERE a.price > 0 AND a.opened_at >= %(month_begins)s AND a.opened_at < %(month_ends)s
), board_spent AS MATERIALIZED (
    SELECT s.board_id, sum({money}) AS money
    FROM attempt a JOIN run r ON r.id = a.run_id JOIN submission s ON s.id = r.submission_id
    WHERE a.price > 0 AND a.opened_at >= %(month_begins)s AND a.opened_at < %(month_ends)s GROUP BY s.board_id
), team_spent AS MATERIALIZED (
    SELECT s.team, sum({money}) AS money
    FROM attempt a JOIN run r ON r.id = a.run_id JOIN submission s ON s.id = r.submission_id
    WHERE s.team IS NOT NULL AND a.price > 0 AND a.opened_at >= %(month_begins)s AND a.opened_at < %(month_ends)s
    GROUP BY s.team
)"""

_MOST_MONEY = "run.cost_s * (SELECT v.ranks FROM problem_version v WHERE v.id = run.problem_version_id) * slot.price"

_PLACED_CANDIDATES = f"""
    SELECT q.id, q.fair_at, slot.backend, slot.place
    FROM slot CROSS JOIN LATERAL (
        SELECT run.id, run.fair_at FROM run
        JOIN submission s ON s.id = run.submission_id JOIN leaderboard b ON b.id = s.board_id
        WHERE {_FITS_SLOT} AND (run.by_staff OR NOT slot.staff_only)
            AND (slot.way = 'any' OR (slot.way = 'warm') = ({WARMABLE} AND run.cost_s <= slot.fits_s))
            AND (run.pinned IS NOT NULL OR NOT slot.pinned_only
                AND (slot.queued_before IS NULL OR run.queued_at <= slot.queued_before)
                AND (slot.leaderboard = 'yes' OR s.mode <> 'leaderboard' OR slot.leaderboard = 'unranked'
                    AND NOT run.second AND run.rejudging_id = 0 AND NOT s.via = ANY(%(of_the_service)s))
                AND (NOT slot.overflow OR run.fair_at < '{SERVICE_FROM.isoformat()}'::timestamptz)
                AND (NOT slot.overflow OR NOT lower(b.name) = ANY(%(listed)s)
                    OR slot.backend || '/' || lower(b.name) = ANY(%(allowed)s)))
            AND (slot.price = 0 OR (%(budget)s::float8 IS NULL
                    OR (SELECT money FROM spent) + {_MOST_MONEY} <= %(budget)s)
                AND (NOT lower(b.name) = ANY(%(bounded)s) OR
                    coalesce((SELECT t.money FROM board_spent t WHERE t.board_id = b.id), 0) + {_MOST_MONEY} <=
                    (SELECT bound.money FROM unnest(%(bounded)s::text[], %(bounds)s::float8[]) AS bound(board, money)
                    WHERE bound.board = lower(b.name)))
                AND (s.team IS NULL OR coalesce(
                    coalesce((SELECT t.money FROM team_spent t WHERE t.team = s.team), 0) + {_MOST_MONEY} <=
                    coalesce((SELECT bound.money FROM unnest(%(teams)s::text[], %(team_bounds)s::float8[])
                        AS bound(team, money) WHERE bound.team = s.team), %(each_team)s::float8), true)))
        ORDER BY run.gpu, run.fair_at, run.id LIMIT {CANDIDATES} OFFSET slot.skip
    ) q"""

_PLACED = """, candidate AS MATERIALIZED ({}
), picked AS MATERIALIZED (
    SELECT run.id, c.backend, c.place FROM candidate c JOIN run ON run.id = c.id
    WHERE run.state = 'queued' ORDER BY c.fair_at, c.id, c.place LIMIT 1 FOR UPDATE OF run SKIP LOCKED
)"""

_CLAIMED_BY_POLICY = _claimed(
    columns=", price, ranks, gpu_class, why_here, keeper_id, away",
    values=", slot.price, slot.leaderboard = 'yes', slot.gpu_class, slot.why, slot.keeper, slot.overflow",
    also=", slot WHERE slot.place = (SELECT place FROM picked)",
)

_CLAIMED = _claimed()
_SLOTS_BY_POLICY = _PLACED_SLOTS.format(money=MONEY, open_attempt=OPEN_ATTEMPT, quarantined=QUARANTINED)
CLAIM_BY_POLICY = _SLOTS_BY_POLICY + _PLACED.format(_PLACED_CANDIDATES) + _CLAIMED_BY_POLICY
CLAIM_OF_ONE = _PICKED_OF_ONE + _CLAIMED
CLAIM = _SLOTS + _PICKED.format(_CANDIDATES) + _CLAIMED
CLAIM_BESIDE_STAFF = _SLOTS + _PICKED.format(_CANDIDATES + _STAFFS_CANDIDATES) + _CLAIMED


def conditions(slots: Sequence[Slot], rules: Rules, now: datetime) -> dict[str, Any]:
    """The parameters of a claim with a policy, besides the slots."""
    begins, ends = placement.month_of(now)
    budget = rules.budget
    return {
        "overflow": [slot.overflow for slot in slots],
        "queued_before": [slot.queued_before for slot in slots],
        "pinned_only": [slot.pinned_only for slot in slots],
        "leaderboard": [slot.leaderboard for slot in slots],
        "price": [slot.price for slot in slots],
        "gpu_class": [slot.gpu_class for slot in slots],
        "why": [slot.why for slot in slots],
        "way": [slot.way for slot in slots],
        "keeper": [slot.keeper for slot in slots],
        "fits_s": [slot.fits_s for slot in slots],
        "skip": [slot.skip for slot in slots],
        "of_the_service": OF_THE_SERVICE,
        "listed": list(rules.boards),
        "allowed": [f"{place}/{board}" for board, places in rules.boards.items() for place in places],
        "budget": budget.month,
        "bounded": list(budget.boards),
        "bounds": list(budget.boards.values()),
        "each_team": budget.team,
        "teams": list(budget.teams),
        "team_bounds": list(budget.teams.values()),
        "month_begins": begins,
        "month_ends": ends,
    }
