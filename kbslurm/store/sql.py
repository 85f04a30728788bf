"""The named statements of the walk. Each that changes something is whole in itself: the event is written with the rows.

Values are always bound, as %(name)s. Every later write of an attempt is fenced: the run must still be on that attempt's
number and not have ended, or zero rows come back and nothing was changed. Locks are always taken run before attempt.

Events: submission.accepted, run.queued, run.launching, attempt.submitted, attempt.ambiguous, attempt.resent,
attempt.withdrawing, board.calibrated, run.running, run.scored, run.requeued, run.failed, run.cancel_asked,
run.cancelled, report.stale; and the hosts' acts as staff.* and board.*.
"""

from __future__ import annotations

LIVE = "state IN ('launching', 'running')"
OPEN_ATTEMPT = "state IN ('intent', 'ambiguous', 'submitted', 'running')"

# ------------------------------------------------------------------------------------------------------- 1: accept

INTAKE_LOCK = 4_927_306  # held shared by whoever accepts, alone by whoever pauses: see tables.PROGRAMS

INTAKE = """
SELECT p.id AS person_id, p.role, b.id AS board_id, b.name AS board, b.gpus, b.problem_version_id, f.*
FROM person p LEFT JOIN leaderboard b ON lower(b.name) = lower(%(board)s) AND b.deleted_at IS NULL
LEFT JOIN LATERAL kb_facts(p.id, b.id, %(category)s) f ON true
WHERE p.id = %(person)s
"""

LOCK_INTAKE = "SELECT kb_intake_lock(%(person)s)"
FACTS = "SELECT * FROM kb_facts(%(person)s, %(board)s, %(category)s)"

ACCEPT = """
SELECT made AS submission_id, due AS run_ids FROM kb_accept(%(seen)s, %(category)s, %(person)s, %(board)s, %(mode)s,
    %(file_name)s, %(source)s, %(sha256)s, %(via)s, %(by_staff)s, %(version)s, %(gpus)s, %(fair_at)s, %(seeds)s,
    %(cost_s)s, %(paired)s, %(place)s, %(now)s)
"""

# -------------------------------------------------------------------------------------------------------- 2: claim

# Of one slot: the first of the partial index that nobody holds. Of several: a few candidates for each come off the
# index without a lock, then the fairest that nobody holds is locked, for the first slot that it fits; locking while
# picking would hide the best run of every other slot from whoever claims beside us. A slot for staff only looks at
# staff's runs, by an index of their own. A run that is too wide for a slot, or that its backend has refused for ever,
# is stepped over: it waits for another place.
CANDIDATES = 8
ANY_WIDTH = (1 << 31) - 1

_ATTEMPT_COLUMNS = """a.id, a.run_id, a.number, a.name, a.backend, a.gpu, a.state, a.handle, a.opened_at, a.deadline_at,
    a.clean_sweeps, a.swept_at, a.seen_at, a.started_at, a.node, a.gpus, a.ranks, a.withdraw_at"""

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
    """The picked run's next attempt, and the event; with a policy more is known of it, from its slot."""
    return f""", moved AS (
    UPDATE run SET state = 'launching', attempts = attempts + 1, reason = ''
    WHERE id = (SELECT id FROM picked) AND state = 'queued'
    RETURNING id, attempts, gpu, submission_id, problem_version_id, cost_s, (SELECT backend FROM picked) AS backend
), opened AS (
    INSERT INTO attempt (run_id, number, name, backend, gpu, key, nonce, opened_at, gpus{columns})
    SELECT id, attempts, %(name)s, moved.backend, moved.gpu, %(key)s, %(nonce)s, %(now)s,
        (SELECT v.ranks FROM problem_version v WHERE v.id = moved.problem_version_id){values} FROM moved{also}
    RETURNING *
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'run.launching', 'run:' || id, jsonb_build_object('submission', submission_id, 'attempt', attempts,
        'backend', backend, 'gpu', gpu, 'job', %(name)s::text), %(now)s
    FROM moved
)
SELECT {_ATTEMPT_COLUMNS}, NULL::timestamptz AS cancel_at FROM opened a
"""


# With a policy: what a slot's conditions say of a run, where it wasn't ordered there, and of what it may cost at most.
# A calibration, a final, a rejudging and a second measurement go nowhere but to their board's own class of GPU.
_PLACED_SLOTS = """
WITH slot AS MATERIALIZED (
    SELECT * FROM unnest(%(gpus)s::text[], %(backends)s::text[], %(most)s::int[], %(staff_only)s::bool[],
        %(overflow)s::bool[], %(queued_before)s::timestamptz[], %(pinned_only)s::bool[], %(leaderboard)s::text[],
        %(price)s::float8[], %(gpu_class)s::text[], %(why)s::text[])
        WITH ORDINALITY AS s(gpu, backend, most, staff_only, overflow, queued_before, pinned_only, leaderboard, price,
            gpu_class, why, place)
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
GPU_S = f"""(a.gpus * CASE
    WHEN a.{OPEN_ATTEMPT} THEN greatest(a.reserve_s, coalesce(extract(epoch FROM %(now)s - a.started_at), 0))
    WHEN a.state = 'refused' THEN 0
    WHEN a.started_at IS NOT NULL THEN greatest(0, extract(epoch FROM a.ended_at - a.started_at))
    WHEN a.state = 'cancelled' THEN 0
    WHEN a.state = 'reported'
        THEN least(a.reserve_s, greatest(0, extract(epoch FROM a.ended_at - coalesce(a.submitted_at, a.opened_at))))
    ELSE a.reserve_s END)::float8"""
MONEY = f"({GPU_S} * a.price)"
_MOST_MONEY = "run.cost_s * (SELECT v.ranks FROM problem_version v WHERE v.id = run.problem_version_id) * slot.price"
_PLACED_CANDIDATES = f"""
    SELECT q.id, q.fair_at, slot.backend, slot.place
    FROM slot CROSS JOIN LATERAL (
        SELECT run.id, run.fair_at FROM run
        JOIN submission s ON s.id = run.submission_id JOIN leaderboard b ON b.id = s.board_id
        WHERE {_FITS_SLOT} AND (run.by_staff OR NOT slot.staff_only)
            AND (run.pinned IS NOT NULL OR NOT slot.pinned_only
                AND (slot.queued_before IS NULL OR run.queued_at <= slot.queued_before)
                AND (slot.leaderboard = 'yes' OR s.mode <> 'leaderboard' OR slot.leaderboard = 'unranked'
                    AND NOT run.second AND run.rejudging_id = 0 AND NOT s.via = ANY(%(of_the_house)s))
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
        ORDER BY run.gpu, run.fair_at, run.id LIMIT {CANDIDATES}
    ) q"""
_PLACED = """, candidate AS MATERIALIZED ({}
), picked AS MATERIALIZED (
    SELECT run.id, c.backend, c.place FROM candidate c JOIN run ON run.id = c.id
    WHERE run.state = 'queued' ORDER BY c.fair_at, c.id, c.place LIMIT 1 FOR UPDATE OF run SKIP LOCKED
)"""
_CLAIMED_BY_POLICY = _claimed(
    columns=", price, ranks, gpu_class, why_here, reserve_s",
    values=", slot.price, slot.leaderboard = 'yes', slot.gpu_class, slot.why, moved.cost_s",
    also=", slot WHERE slot.place = (SELECT place FROM picked)",
)
_CLAIMED = _claimed()

CLAIM_BY_POLICY = _PLACED_SLOTS.format(money=MONEY) + _PLACED.format(_PLACED_CANDIDATES) + _CLAIMED_BY_POLICY
CLAIM_OF_ONE = _PICKED_OF_ONE + _CLAIMED
CLAIM = _SLOTS + _PICKED.format(_CANDIDATES) + _CLAIMED
CLAIM_BESIDE_STAFF = _SLOTS + _PICKED.format(_CANDIDATES + _STAFFS_CANDIDATES) + _CLAIMED

OPEN_ATTEMPTS = f"""
SELECT {_ATTEMPT_COLUMNS}, run.cancel_at FROM attempt a JOIN run ON run.id = a.run_id
WHERE a.{OPEN_ATTEMPT} ORDER BY a.id
"""

# What ended without a report, or was believed to: should its payload live on, its report is kept as stale.
LATELY_DEAD = f"""
SELECT {_ATTEMPT_COLUMNS}, run.cancel_at FROM attempt a JOIN run ON run.id = a.run_id
WHERE a.state = 'dead' AND a.node IS NOT NULL AND a.ended_at > %(since)s AND a.ending <> 'bad_report'
    AND NOT EXISTS (SELECT 1 FROM stale_report s WHERE s.attempt_id = a.id)
ORDER BY a.id
"""

WAITING = "SELECT gpu, count(*) AS runs FROM run WHERE state = 'queued' AND NOT held GROUP BY gpu ORDER BY gpu"

WORK = f"""
SELECT {_ATTEMPT_COLUMNS}, run.cancel_at, a.key, a.nonce, run.secret_seed, run.problem_version_id,
    s.id AS submission_id, s.by_staff, s.mode, s.file_name, s.source, s.via,
    p.name AS person, b.name AS board, b.min_isolation
FROM attempt a
JOIN run ON run.id = a.run_id
JOIN submission s ON s.id = run.submission_id
JOIN person p ON p.id = s.person_id
JOIN leaderboard b ON b.id = s.board_id
WHERE a.id = %(attempt)s
"""

# Where this run failed before, and where runs of three different people failed within the hour before: no one person
# can take a node away from everybody. 'refused' and the submitter's own limits say nothing about a node.
QUARANTINE_S = 3600
QUARANTINE_PEOPLE = 3
INFRASTRUCTURE = (
    "ending IN ('node_failure', 'preempted', 'boot_failure', 'image', 'no_report', 'bad_report', 'vanished',"
    " 'unsteady')"
)

QUARANTINED = f"""
SELECT a.backend, a.node, count(DISTINCT run.person_id) AS people, max(a.ended_at) AS since
FROM attempt a JOIN run ON run.id = a.run_id
WHERE a.state = 'dead' AND a.node IS NOT NULL AND a.{INFRASTRUCTURE}
    AND a.ended_at > %(now)s - interval '{QUARANTINE_S} seconds'
GROUP BY a.backend, a.node HAVING count(DISTINCT run.person_id) >= {QUARANTINE_PEOPLE}
"""

AVOID = f"""
SELECT node FROM attempt
WHERE run_id = %(run)s AND backend = %(backend)s AND state = 'dead' AND node IS NOT NULL AND {INFRASTRUCTURE}
UNION
SELECT node FROM ({QUARANTINED}) q WHERE q.backend = %(backend)s
ORDER BY node
"""

# ------------------------------------------------------------------------------------------- 4 and 6: launch, collect

# Noted again, as after a connection that was cut while it answered, the same handle is no second event.
NOTE_HANDLE = f"""
WITH before AS (
    SELECT id, handle FROM attempt WHERE id = %(attempt)s FOR UPDATE
), noted_attempt AS (
    UPDATE attempt SET handle = %(handle)s, deadline_at = %(deadline_at)s, clean_sweeps = 0, swept_at = NULL,
        submitted_at = coalesce(submitted_at, %(now)s), reason = '',
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
    UPDATE attempt SET state = 'ambiguous', reason = %(why)s
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

# Only what hasn't begun, and whose run one of these slots takes: else it would wait for nothing.
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
    UPDATE attempt SET state = 'intent', clean_sweeps = 0, swept_at = NULL, handle = NULL, reason = ''
    WHERE id = %(attempt)s AND number = %(number)s AND {OPEN_ATTEMPT}
    RETURNING id, run_id, number, backend
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'attempt.resent', 'run:' || run_id, jsonb_build_object('attempt', number, 'backend', backend), %(now)s
    FROM noted_attempt
)
SELECT id FROM noted_attempt
"""

# After a leap of the clock that no job lived through. One after the other by id, as every writer of many rows.
PUT_OFF_DEADLINES = f"""
UPDATE attempt SET deadline_at = deadline_at + make_interval(secs => %(by_s)s)
WHERE id IN (SELECT id FROM attempt WHERE {OPEN_ATTEMPT} AND deadline_at IS NOT NULL ORDER BY id FOR UPDATE)
RETURNING id
"""

NOTE_WAITING = f"""
UPDATE attempt SET seen_at = %(now)s, clean_sweeps = 0, swept_at = NULL, handle = coalesce(%(handle)s, handle),
    submitted_at = coalesce(submitted_at, %(now)s), node = coalesce(%(node)s, node),
    state = CASE WHEN state = 'running' THEN state ELSE 'submitted' END
WHERE id = %(attempt)s AND number = %(number)s AND {OPEN_ATTEMPT}
RETURNING id
"""

# Two updates of one statement run in any order; the lock that both wait for makes it run before attempt here, too.
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
        submitted_at = coalesce(submitted_at, %(now)s), started_at = coalesce(%(started_at)s, started_at, %(now)s)
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

# What was seen of an end is written down; whether it is the end of the attempt is decided by evidence, elsewhere.
NOTE_ENDED = f"""
UPDATE attempt SET seen_at = %(now)s, handle = coalesce(%(handle)s, handle), node = coalesce(%(node)s, node),
    started_at = coalesce(%(started_at)s, started_at), ended_at = coalesce(%(ended_at)s, ended_at),
    exit_code = coalesce(%(exit_code)s, exit_code), reason = %(reason)s, clean_sweeps = 0, swept_at = NULL
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

# -------------------------------------------------------------------------------------------------------- 7: score

# Law 1. The UPDATE is the gate: what it doesn't give back, the other parts have nothing to feed on. With a seed for a
# second measurement, that run is queued here and counts instead of this one; it is held until it is its turn, one of a
# person's after the other (store/measuring.py). With reference times, a calibration is kept and what waited for it is
# let go. Files of a profile aren't kept once it was taken back: whoever removes a submission cancels it first, under
# the run's lock.
SCORE = f"""
WITH moved AS (
    UPDATE run SET state = 'scored', ended_at = %(now)s, reason = %(reason)s,
        counts = counts AND %(second_seed)s::text IS NULL
    WHERE id = %(run)s AND attempts = %(number)s AND {LIVE}
    RETURNING id, submission_id, gpu, person_id, counts, problem_version_id, fair_at, cost_s, by_staff, cancel_at
), closed AS (
    UPDATE attempt SET state = CASE WHEN %(ending)s = 'reported' THEN 'reported' ELSE 'dead' END, ending = %(ending)s,
        ended_at = coalesce(attempt.ended_at, %(now)s), telemetry = %(telemetry)s, reason = %(reason)s
    FROM moved WHERE attempt.id = %(attempt)s AND attempt.run_id = moved.id
    RETURNING attempt.id, attempt.number, attempt.backend, attempt.ranks
), judged AS (
    INSERT INTO verdict (run_id, attempt_id, name, reason, score_s, low_s, high_s, isolation, ranked, detail, at)
    SELECT moved.id, closed.id, %(verdict)s, %(reason)s, %(score_s)s, %(low_s)s, %(high_s)s, %(isolation)s,
        %(ranked)s AND closed.ranks, %(detail)s, %(now)s
    FROM moved, closed
    RETURNING run_id
), archived AS (
    INSERT INTO raw_samples (attempt_id, data) SELECT closed.id, %(samples)s FROM closed
    WHERE %(samples)s::bytea IS NOT NULL
), calibrated AS (
    INSERT INTO calibration (board_id, problem_version_id, gpu, run_id, b_ref_s, at)
    SELECT s.board_id, moved.problem_version_id, moved.gpu, moved.id, %(b_ref_s)s::float8[], %(now)s
    FROM moved JOIN submission s ON s.id = moved.submission_id WHERE %(b_ref_s)s::float8[] IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING board_id, problem_version_id, gpu
), released AS (
    UPDATE run SET held = false FROM calibrated c, submission s
    WHERE run.held AND NOT run.second AND run.state = 'queued' AND run.gpu = c.gpu
        AND run.problem_version_id = c.problem_version_id AND s.id = run.submission_id AND s.board_id = c.board_id
), seconded AS (
    INSERT INTO run (submission_id, problem_version_id, person_id, gpu, fair_at, queued_at, cost_s, by_staff,
        secret_seed, second, held)
    SELECT moved.submission_id, moved.problem_version_id, moved.person_id, moved.gpu, moved.fair_at, %(now)s,
        moved.cost_s, moved.by_staff, %(second_seed)s, true, true
    FROM moved WHERE %(second_seed)s::text IS NOT NULL
    RETURNING id, submission_id, gpu
), drawn AS (
    INSERT INTO artifact (attempt_id, name, data, at) SELECT closed.id, file.name, file.data, %(now)s
    FROM closed, moved, unnest(%(names)s::text[], %(files)s::bytea[]) AS file(name, data)
    WHERE moved.cancel_at IS NULL
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'run.scored', 'run:' || moved.id, jsonb_build_object('submission', moved.submission_id, 'gpu', moved.gpu,
        'person', moved.person_id, 'attempt', closed.number, 'backend', closed.backend, 'verdict', %(verdict)s::text,
        'score_s', %(score_s)s::float8, 'ranked', %(ranked)s::boolean AND closed.ranks, 'counts', moved.counts),
        %(now)s
    FROM moved, closed
    UNION ALL
    SELECT 'run.queued', 'run:' || id, jsonb_build_object('submission', submission_id, 'gpu', gpu, 'second', true),
        %(now)s FROM seconded
    UNION ALL
    SELECT 'board.calibrated', 'board:' || board_id, jsonb_build_object('version', problem_version_id, 'gpu', gpu),
        %(now)s FROM calibrated
)
SELECT run_id FROM judged
"""

# The wish to cancel is read from the run's newest version, under its lock: a cancelled run is never queued again. An
# attempt that was refused for ever is no attempt at infrastructure: it isn't counted among those.
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
        reason = %(why)s
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

# ---------------------------------------------------------------------------------------------------------- cancel

MAY_CANCEL = """
SELECT s.person_id = p.id OR p.role IN ('owner', 'staff') AS may
FROM submission s LEFT JOIN person p ON p.id = %(by)s WHERE s.id = %(submission)s
"""

LOCK_RUNS = """
SELECT id FROM run WHERE submission_id = %(submission)s AND state IN ('queued', 'launching', 'running')
ORDER BY id FOR UPDATE
"""

CANCEL_QUEUED = """
WITH moved AS (
    UPDATE run SET state = 'cancelled', cancel_at = %(now)s, cancel_by = %(by)s, ended_at = %(now)s
    WHERE submission_id = %(submission)s AND state = 'queued'
    RETURNING id, submission_id, gpu, person_id
)
INSERT INTO event (kind, subject, data, at)
SELECT 'run.cancelled', 'run:' || id, jsonb_build_object('submission', submission_id, 'gpu', gpu, 'person', person_id,
    'by', %(by)s::bigint), %(now)s
FROM moved
"""

ASK_TO_CANCEL = f"""
WITH asked AS (
    UPDATE run SET cancel_at = %(now)s, cancel_by = %(by)s
    WHERE submission_id = %(submission)s AND {LIVE} AND cancel_at IS NULL
    RETURNING id, submission_id, gpu, attempts
)
INSERT INTO event (kind, subject, data, at)
SELECT 'run.cancel_asked', 'run:' || id, jsonb_build_object('submission', submission_id, 'gpu', gpu,
    'attempt', attempts, 'by', %(by)s::bigint), %(now)s
FROM asked
"""

ASKED_ATTEMPTS = f"""
SELECT {_ATTEMPT_COLUMNS}, run.cancel_at FROM run JOIN attempt a ON a.run_id = run.id AND a.number = run.attempts
WHERE run.submission_id = %(submission)s AND run.{LIVE} AND a.{OPEN_ATTEMPT}
ORDER BY a.id
"""

END_CANCELLED = f"""
WITH moved AS (
    UPDATE run SET state = 'cancelled', cancel_at = coalesce(cancel_at, %(now)s), ended_at = %(now)s
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

# ------------------------------------------------------------------------------------------------ 8: events, leases

SETTLED = "SELECT kb_settled_event() AS settled"

EVENTS = """
SELECT id, kind, subject, data, at FROM event WHERE id > %(after)s AND id <= %(settled)s ORDER BY id LIMIT %(limit)s
"""

EVENT = "INSERT INTO event (kind, subject, data, at) VALUES (%(kind)s, %(subject)s, %(data)s, %(now)s)"

CURSOR = "SELECT event_id FROM cursor WHERE reader = %(reader)s"

# A cursor only goes forward: a reader that was replaced can't take its successor back.
MOVE_CURSOR = """
INSERT INTO cursor (reader, event_id) VALUES (%(reader)s, %(to)s)
ON CONFLICT (reader) DO UPDATE SET event_id = greatest(cursor.event_id, excluded.event_id)
"""

HOLD_LEASE = """
INSERT INTO lease (name, holder, elected_at, beat_at, expires_at, info)
VALUES (%(name)s, %(holder)s, %(now)s, %(now)s, %(expires_at)s, %(info)s)
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder, beat_at = excluded.beat_at, expires_at = excluded.expires_at, info = excluded.info,
    elected_at = CASE WHEN lease.holder = excluded.holder THEN lease.elected_at ELSE excluded.elected_at END
WHERE lease.holder = excluded.holder OR lease.expires_at <= excluded.beat_at
RETURNING name
"""

RELEASE_LEASE = "DELETE FROM lease WHERE name = %(name)s AND holder = %(holder)s"

LEASES = "SELECT name, holder, elected_at, beat_at, expires_at, info FROM lease ORDER BY name"

SETTING = "SELECT value FROM setting WHERE key = %(key)s"

PUT_SETTING = """
INSERT INTO setting (key, value) VALUES (%(key)s, %(value)s) ON CONFLICT (key) DO UPDATE SET value = excluded.value
"""
