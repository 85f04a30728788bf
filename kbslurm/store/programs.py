"""Functions in the database: ordered events, intake decisions, and rows that protect themselves."""

from __future__ import annotations

from kbslurm.domain.fairness import SERVICE_FROM
from kbslurm.store.attempt_rows import ENDED_GPU_S, OPEN_ATTEMPT
from kbslurm.store.settings import INTAKE_LOCK

USE_LOCK = (
    4_927_314  # held shared while an attempt's use is added to budgets, exclusively while a budget is counted anew
)
EVENT_LOCK = 4_927_305  # the advisory locks of transactions that will write events: see PROGRAMS

# Event IDs are assigned before their transaction commits, so a reader that remembers only the highest ID it saw could
# skip one that isn't committed yet. Therefore a transaction that will write events first takes a shared advisory lock
# whose key contains the last ID assigned before; all its own IDs are higher. Everything below every such key (and
# assigned when the read began) has been committed or rolled back for good: `kb_settled_event`. Shared locks never
# wait for one another, so writers don't queue. The identity sequence must keep CACHE 1.
PROGRAMS: dict[str, str] = {
    "kb_event_announced": f"""
CREATE FUNCTION kb_event_announced() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE given bigint;
BEGIN
    SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END INTO given FROM event_id_seq;
    PERFORM pg_advisory_xact_lock_shared(({EVENT_LOCK}::bigint << 40) | given);
    RETURN NULL;
END $$""",
    "kb_settled_event": f"""
CREATE FUNCTION kb_settled_event() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    given bigint;
    pending bigint;
BEGIN
    SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END INTO given FROM event_id_seq;
    SELECT min(((classid::bigint << 32) | objid::bigint) & ((1::bigint << 40) - 1)) INTO pending
    FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND ((classid::bigint << 32) | objid::bigint) >> 40 = {EVENT_LOCK};
    RETURN least(given, coalesce(pending, given));
END $$""",
    # Transactions that NOTIFY are committed one after another, each waiting for the disk. So one that many do at once
    # can say `later`, and rings once it is committed.
    "kb_news": """
CREATE FUNCTION kb_news() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('kbslurm.news', true) IS DISTINCT FROM 'later' THEN
        NOTIFY kbslurm_news;
    END IF;
    RETURN NULL;
END $$""",
    "kb_moved": """
CREATE FUNCTION kb_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.came_from := OLD.state;
    RETURN NEW;
END $$""",
    # Until when a person may submit to a board beyond its own deadline; NULL: no longer.
    "kb_extended_to": """
CREATE FUNCTION kb_extended_to(the_board bigint, the_person bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT greatest(
        (SELECT e.deadline_at FROM extension e WHERE e.board_id = the_board AND e.person_id = the_person),
        (SELECT max(x.deadline_at) FROM section_extension x JOIN leaderboard b ON b.id = x.board_id
            JOIN roster r ON r.course = b.course AND lower(r.section) = x.section
            WHERE x.board_id = the_board AND r.person_id = the_person)
    )
$$""",
    # The facts for a decision, and the same as one string: `seen`. The runs of service tokens push nobody's own back.
    "kb_facts": f"""
CREATE FUNCTION kb_facts(the_person bigint, the_board bigint, the_category text,
    OUT person text, OUT banned_at timestamptz, OUT ban_reason text, OUT name text, OUT closed_at timestamptz,
    OUT deadline_at timestamptz, OUT zone text, OUT visibility text, OUT accepts_jobs jsonb, OUT fair_at timestamptz,
    OUT cost_s double precision, OUT invited boolean, OUT extended_to timestamptz, OUT most_per_hour integer,
    OUT quota_gpu_s double precision, OUT team text, OUT late_until timestamptz,
    OUT budget_course text, OUT seen text
) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE role text;
BEGIN
    SELECT p.name, p.role, p.banned_at, p.ban_reason, b.name, b.closed_at, b.deadline_at, b.zone, b.visibility,
        (SELECT s.value FROM setting s WHERE s.key = 'accepts_jobs'), last.fair_at, last.cost_s,
        EXISTS (SELECT 1 FROM invite i JOIN invite_board ib ON ib.invite_id = i.id
            WHERE i.person_id = p.id AND i.revoked_at IS NULL AND ib.board_id = b.id)
            OR EXISTS (SELECT 1 FROM roster m WHERE m.person_id = p.id AND m.course = b.course)
            OR EXISTS (SELECT 1 FROM board_role h WHERE h.person_id = p.id AND h.board_id = b.id),
        kb_extended_to(b.id, p.id),
        (SELECT l.most_per_hour FROM rate_limit l WHERE l.board_id = b.id AND l.category = the_category),
        (SELECT q.gpu_s_per_day FROM quota q WHERE q.board_id = b.id),
        CASE WHEN b.teams THEN kb_team_of(p.id, b.id) END, b.late_until,
        (SELECT g.course FROM gpu_budget g WHERE g.course = b.course LIMIT 1)
    INTO person, role, banned_at, ban_reason, name, closed_at, deadline_at, zone, visibility, accepts_jobs, fair_at,
        cost_s, invited, extended_to, most_per_hour, quota_gpu_s, team, late_until, budget_course
    FROM person p LEFT JOIN leaderboard b ON b.id = the_board AND b.deleted_at IS NULL
    LEFT JOIN LATERAL (
        SELECT r.fair_at, r.cost_s FROM run r
        WHERE r.person_id = p.id AND r.state IN ('queued', 'launching', 'running') AND r.counts
            AND r.fair_at < '{SERVICE_FROM.isoformat()}'::timestamptz
        ORDER BY r.fair_at DESC LIMIT 1
    ) last ON true
    WHERE p.id = the_person;
    seen := ROW(person, role, banned_at, ban_reason, name, closed_at, deadline_at, zone, visibility, accepts_jobs,
        fair_at, cost_s, invited, extended_to, most_per_hour, quota_gpu_s, team, late_until, budget_course)::text;
END $$""",
    # The person's row serialises their submissions: two concurrent ones are stamped one after the other. The shared
    # intake lock is what a pause waits for: once a pause returns, nothing more is accepted. Whoever takes it
    # rings later.
    "kb_intake_lock": f"""
CREATE FUNCTION kb_intake_lock(the_person bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('kbslurm.news', 'later', true);
    PERFORM pg_advisory_xact_lock_shared({INTAKE_LOCK});
    PERFORM p.id FROM person p WHERE p.id = the_person FOR NO KEY UPDATE;
END $$""",
    # Stores what was decided based on `the_seen` if that is unchanged under the locks; otherwise nothing. Each
    # statement
    # in here sees what was committed while the previous one waited.
    "kb_accept": """
CREATE FUNCTION kb_accept(the_seen text, the_category text, the_person bigint, the_board bigint, the_mode text,
    the_file_name text, the_source text, the_sha256 text, the_via text, staff boolean, the_version bigint,
    the_gpus text[], the_stamps timestamptz[], the_seeds text[], the_cost_s double precision, paired boolean,
    the_place text, at timestamptz, OUT made bigint, OUT due bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE now_so text;
BEGIN
    PERFORM kb_intake_lock(the_person);
    SELECT f.seen INTO now_so FROM kb_facts(the_person, the_board, the_category) f;
    IF now_so IS DISTINCT FROM the_seen THEN
        RETURN;
    END IF;
    INSERT INTO submission (person_id, board_id, mode, file_name, source, sha256, via, by_staff, accepted_at)
    VALUES (the_person, the_board, the_mode, the_file_name, the_source, the_sha256, the_via, staff, kb_accept.at)
    RETURNING id INTO made;
    WITH queued AS (
        INSERT INTO run (submission_id, problem_version_id, person_id, gpu, fair_at, queued_at, cost_s, by_staff,
            secret_seed, pinned, held)
        SELECT made, the_version, the_person, r.gpu, r.fair_at, kb_accept.at, the_cost_s, staff, r.seed,
            the_place, paired AND NOT EXISTS (SELECT 1 FROM calibration c
                WHERE c.board_id = the_board AND c.problem_version_id = the_version AND c.gpu = r.gpu)
        FROM unnest(the_gpus, the_stamps, the_seeds) AS r(gpu, fair_at, seed)
        RETURNING id, gpu
    ), noted AS (
        INSERT INTO event (kind, subject, data, at)
        SELECT 'submission.accepted', 'submission:' || made,
            jsonb_build_object('person', the_person, 'board', the_board, 'mode', the_mode, 'via', the_via), kb_accept.at
        UNION ALL
        SELECT 'run.queued', 'run:' || q.id, jsonb_build_object('submission', made, 'gpu', q.gpu), kb_accept.at
        FROM queued q
    )
    SELECT array_agg(q.id ORDER BY q.id) INTO due FROM queued q;
END $$""",
    # A person's team on a board: the one on its course's roster; their own where they aren't on that.
    "kb_team_of": """
CREATE FUNCTION kb_team_of(the_person bigint, the_board bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN r.person_id IS NULL THEN p.team ELSE r.team END
    FROM person p JOIN leaderboard b ON b.id = the_board
    LEFT JOIN roster r ON r.person_id = p.id AND r.course = b.course
    WHERE p.id = the_person
$$""",
    # A trigger, since submissions are created in several ways, and none may forget it.
    "kb_team": """
CREATE FUNCTION kb_team() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.team := kb_team_of(NEW.person_id, NEW.board_id);
    RETURN NEW;
END $$""",
    # The GPU-seconds of an attempt; none while it is open.
    "kb_gpu_s": f"""
CREATE FUNCTION kb_gpu_s(a attempt) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT (a.gpus * CASE WHEN a.{OPEN_ATTEMPT} THEN 0
    {ENDED_GPU_S} END)::float8
$$""",
    # What an attempt used, into every budget at home that counts it. Rejudging is the hosts' own wish, so it counts for
    # the course alone.
    "kb_used": f"""
CREATE FUNCTION kb_used() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE more double precision := kb_gpu_s(NEW) - kb_gpu_s(OLD);
BEGIN
    IF NEW.away OR more = 0 THEN
        RETURN NULL;
    END IF;
    PERFORM pg_advisory_xact_lock_shared({USE_LOCK});
    INSERT INTO gpu_budget_use AS u (budget_id, person_id, gpu_s, money, at)
    SELECT g.id, s.person_id, more, more * NEW.price, coalesce(NEW.ended_at, OLD.ended_at)
    FROM run r JOIN submission s ON s.id = r.submission_id JOIN leaderboard b ON b.id = s.board_id
    JOIN gpu_budget g ON g.course = b.course
    WHERE r.id = NEW.run_id AND g.gpu IN ('', NEW.gpu) AND (g.scope = 'course' OR r.rejudging_id = 0)
        AND (g.begins_at IS NULL OR NEW.opened_at >= g.begins_at) AND (g.ends_at IS NULL OR NEW.opened_at < g.ends_at)
    ORDER BY g.id
    ON CONFLICT (budget_id, person_id) DO UPDATE SET gpu_s = u.gpu_s + excluded.gpu_s,
        money = u.money + excluded.money, at = greatest(u.at, excluded.at);
    RETURN NULL;
END $$""",
    # The same for all attempts that a course's budgets count (or for one of them): once they are set, and when a board
    # changes its course.
    "kb_count_budgets": f"""
CREATE FUNCTION kb_count_budgets(the_course text, the_budget bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock({USE_LOCK});
    DELETE FROM gpu_budget_use u USING gpu_budget g
    WHERE g.id = u.budget_id AND g.course = the_course AND g.id = coalesce(the_budget, g.id);
    INSERT INTO gpu_budget_use (budget_id, person_id, gpu_s, money, at)
    SELECT g.id, s.person_id, sum(kb_gpu_s(a)), sum(kb_gpu_s(a) * a.price), max(a.ended_at)
    FROM gpu_budget g JOIN leaderboard b ON b.course = g.course JOIN submission s ON s.board_id = b.id
    JOIN run r ON r.submission_id = s.id JOIN attempt a ON a.run_id = r.id
    WHERE g.course = the_course AND g.id = coalesce(the_budget, g.id) AND a.ended_at IS NOT NULL AND NOT a.away
        AND g.gpu IN ('', a.gpu) AND (g.scope = 'course' OR r.rejudging_id = 0)
        AND (g.begins_at IS NULL OR a.opened_at >= g.begins_at) AND (g.ends_at IS NULL OR a.opened_at < g.ends_at)
    GROUP BY g.id, s.person_id;
END $$""",
    "kb_course_changed": """
CREATE FUNCTION kb_course_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM kb_count_budgets(c.course, NULL)
    FROM (SELECT DISTINCT g.course FROM gpu_budget g WHERE g.course IN (OLD.course, NEW.course) ORDER BY g.course) c;
    RETURN NULL;
END $$""",
    "kb_kept": """
CREATE FUNCTION kb_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a row of % is never changed', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$""",
}
