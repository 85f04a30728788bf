"""Accept in one word: the rows are made by one call, which first asks whether what was decided by is still so"""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

FACTS = """
CREATE FUNCTION kb_facts(the_person bigint, the_board bigint, the_category text,
    OUT person text, OUT banned_at timestamptz, OUT ban_reason text, OUT name text, OUT closed_at timestamptz,
    OUT deadline_at timestamptz, OUT zone text, OUT visibility text, OUT accepts_jobs jsonb, OUT fair_at timestamptz,
    OUT cost_s double precision, OUT invited boolean, OUT extended_to timestamptz, OUT most_per_hour integer,
    OUT quota_gpu_s double precision, OUT seen text
) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE role text;
BEGIN
    SELECT p.name, p.role, p.banned_at, p.ban_reason, b.name, b.closed_at, b.deadline_at, b.zone, b.visibility,
        (SELECT s.value FROM setting s WHERE s.key = 'accepts_jobs'), last.fair_at, last.cost_s,
        EXISTS (SELECT 1 FROM invite i JOIN invite_board ib ON ib.invite_id = i.id
            WHERE i.person_id = p.id AND i.revoked_at IS NULL AND ib.board_id = b.id),
        (SELECT e.deadline_at FROM extension e WHERE e.board_id = b.id AND e.person_id = p.id),
        (SELECT l.most_per_hour FROM rate_limit l WHERE l.board_id = b.id AND l.category = the_category),
        (SELECT q.gpu_s_per_day FROM quota q WHERE q.board_id = b.id)
    INTO person, role, banned_at, ban_reason, name, closed_at, deadline_at, zone, visibility, accepts_jobs, fair_at,
        cost_s, invited, extended_to, most_per_hour, quota_gpu_s
    FROM person p LEFT JOIN leaderboard b ON b.id = the_board AND b.deleted_at IS NULL
    LEFT JOIN LATERAL (
        SELECT r.fair_at, r.cost_s FROM run r
        WHERE r.person_id = p.id AND r.state IN ('queued', 'launching', 'running') AND r.counts
        ORDER BY r.fair_at DESC LIMIT 1
    ) last ON true
    WHERE p.id = the_person;
    seen := ROW(person, role, banned_at, ban_reason, name, closed_at, deadline_at, zone, visibility, accepts_jobs,
        fair_at, cost_s, invited, extended_to, most_per_hour, quota_gpu_s)::text;
END $$
"""
LOCK = """
CREATE FUNCTION kb_intake_lock(the_person bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(4927306);
    PERFORM p.id FROM person p WHERE p.id = the_person FOR NO KEY UPDATE;
END $$
"""
ACCEPT = """
CREATE FUNCTION kb_accept(the_seen text, the_category text, the_person bigint, the_board bigint, the_mode text,
    the_file_name text, the_source text, the_sha256 text, the_via text, staff boolean, the_version bigint,
    the_gpus text[], the_stamps timestamptz[], the_seeds text[], the_cost_s double precision, paired boolean,
    at timestamptz, OUT made bigint, OUT due bigint[]
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
            secret_seed, held)
        SELECT made, the_version, the_person, r.gpu, r.fair_at, kb_accept.at, the_cost_s, staff, r.seed,
            paired AND NOT EXISTS (SELECT 1 FROM calibration c
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
END $$
"""
OLD = """
CREATE FUNCTION kb_intake(the_person bigint, the_board bigint, the_category text) RETURNS TABLE (
    person text, banned_at timestamptz, ban_reason text, name text, closed_at timestamptz, deadline_at timestamptz,
    zone text, visibility text, accepts_jobs jsonb, fair_at timestamptz, cost_s double precision, invited boolean,
    extended_to timestamptz, most_per_hour integer, quota_gpu_s double precision
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM pg_advisory_xact_lock_shared(4927306);
    PERFORM p.id FROM person p WHERE p.id = the_person FOR NO KEY UPDATE;
    RETURN QUERY
    SELECT p.name, p.banned_at, p.ban_reason, b.name, b.closed_at, b.deadline_at, b.zone, b.visibility,
        (SELECT s.value FROM setting s WHERE s.key = 'accepts_jobs'), last.fair_at, last.cost_s,
        EXISTS (SELECT 1 FROM invite i JOIN invite_board ib ON ib.invite_id = i.id
            WHERE i.person_id = p.id AND i.revoked_at IS NULL AND ib.board_id = b.id),
        (SELECT e.deadline_at FROM extension e WHERE e.board_id = b.id AND e.person_id = p.id),
        (SELECT l.most_per_hour FROM rate_limit l WHERE l.board_id = b.id AND l.category = the_category),
        (SELECT q.gpu_s_per_day FROM quota q WHERE q.board_id = b.id)
    FROM person p LEFT JOIN leaderboard b ON b.id = the_board AND b.deleted_at IS NULL
    LEFT JOIN LATERAL (
        SELECT r.fair_at, r.cost_s FROM run r
        WHERE r.person_id = p.id AND r.state IN ('queued', 'launching', 'running') AND r.counts
        ORDER BY r.fair_at DESC LIMIT 1
    ) last ON true
    WHERE p.id = the_person;
END $$
"""


def upgrade() -> None:
    op.execute("DROP FUNCTION kb_intake")
    for made in (FACTS, LOCK, ACCEPT):
        op.execute(made)


def downgrade() -> None:
    for name in ("kb_accept", "kb_intake_lock", "kb_facts"):
        op.execute(f"DROP FUNCTION {name}")
    op.execute(OLD)
