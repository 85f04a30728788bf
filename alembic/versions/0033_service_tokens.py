"""Tokens for programs, whose runs wait behind everyone's; and keys by which a submission is found again"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

FACTS = """
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
        WHERE r.person_id = p.id AND r.state IN ('queued', 'launching', 'running') AND r.counts<behind>
        ORDER BY r.fair_at DESC LIMIT 1
    ) last ON true
    WHERE p.id = the_person;
    seen := ROW(person, role, banned_at, ban_reason, name, closed_at, deadline_at, zone, visibility, accepts_jobs,
        fair_at, cost_s, invited, extended_to, most_per_hour, quota_gpu_s, team, late_until, budget_course)::text;
END $$
"""
BEHIND = "\n            AND r.fair_at < '2500-01-01T00:00:00+00:00'::timestamptz"
KINDS = "'cli', 'web', 'api', 'pending', 'invite'"
TRIGGERS = {"submission_key_kept": "idempotency_key", "submission_service_kept": "service_token_id"}


def _kinds(listed: str) -> None:
    op.drop_constraint(op.f("ck_token_kind"), "token", type_="check")
    op.create_check_constraint(op.f("ck_token_kind"), "token", f"kind IN ({listed})")


def _facts(behind: str) -> None:
    op.execute("DROP FUNCTION kb_facts")
    op.execute(FACTS.replace("<behind>", behind).strip())


def upgrade() -> None:
    _kinds(f"{KINDS}, 'service'")
    op.add_column("token", sa.Column("gpu_s_per_day", sa.Double(), nullable=True))
    op.add_column("submission", sa.Column("service_token_id", sa.BigInteger(), nullable=True))
    op.add_column("submission", sa.Column("idempotency_key", sa.Text(), nullable=True))
    op.create_index(
        "ix_submission_service_token",
        "submission",
        ["service_token_id", "accepted_at"],
        postgresql_where=sa.text("service_token_id IS NOT NULL"),
    )
    op.create_index(
        "uq_submission_key",
        "submission",
        ["person_id", "idempotency_key"],
        unique=True,
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    # Both are set in the transaction that accepts the submission, and never again.
    for name, column in TRIGGERS.items():
        op.execute(
            f"CREATE TRIGGER {name} BEFORE UPDATE OF {column} ON submission FOR EACH ROW"
            f" WHEN (OLD.{column} IS NOT NULL) EXECUTE FUNCTION kb_kept()"
        )
    _facts(BEHIND)


def downgrade() -> None:
    _facts("")
    for name in TRIGGERS:
        op.execute(f"DROP TRIGGER {name} ON submission")
    op.drop_index("uq_submission_key", "submission")
    op.drop_index("ix_submission_service_token", "submission")
    op.drop_column("submission", "idempotency_key")
    op.drop_column("submission", "service_token_id")
    op.drop_column("token", "gpu_s_per_day")
    # The older service knows no such tokens, and would take them for people's own.
    op.execute("DELETE FROM token WHERE kind = 'service'")
    _kinds(KINDS)
