"""Intake in one word: the locks and what is decided by come with one call instead of three"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

INTAKE = """
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
    op.execute(INTAKE)


def downgrade() -> None:
    op.execute("DROP FUNCTION kb_intake")
