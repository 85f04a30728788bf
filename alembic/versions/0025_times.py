"""Times: late submissions, extensions of sections, frozen standings, and standings that are fixed"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

EXTENDED_TO = """
CREATE FUNCTION kb_extended_to(the_board bigint, the_person bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT greatest(
        (SELECT e.deadline_at FROM extension e WHERE e.board_id = the_board AND e.person_id = the_person),
        (SELECT max(x.deadline_at) FROM section_extension x JOIN leaderboard b ON b.id = x.board_id
            JOIN roster r ON r.course = b.course AND lower(r.section) = x.section
            WHERE x.board_id = the_board AND r.person_id = the_person)
    )
$$
"""
FACTS = """
CREATE FUNCTION kb_facts(the_person bigint, the_board bigint, the_category text,
    OUT person text, OUT banned_at timestamptz, OUT ban_reason text, OUT name text, OUT closed_at timestamptz,
    OUT deadline_at timestamptz, OUT zone text, OUT visibility text, OUT accepts_jobs jsonb, OUT fair_at timestamptz,
    OUT cost_s double precision, OUT invited boolean, OUT extended_to timestamptz, OUT most_per_hour integer,
    OUT quota_gpu_s double precision, OUT team text, <out>OUT seen text
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
        <extended>,
        (SELECT l.most_per_hour FROM rate_limit l WHERE l.board_id = b.id AND l.category = the_category),
        (SELECT q.gpu_s_per_day FROM quota q WHERE q.board_id = b.id),
        CASE WHEN b.teams THEN kb_team_of(p.id, b.id) END<column>
    INTO person, role, banned_at, ban_reason, name, closed_at, deadline_at, zone, visibility, accepts_jobs, fair_at,
        cost_s, invited, extended_to, most_per_hour, quota_gpu_s, team<name>
    FROM person p LEFT JOIN leaderboard b ON b.id = the_board AND b.deleted_at IS NULL
    LEFT JOIN LATERAL (
        SELECT r.fair_at, r.cost_s FROM run r
        WHERE r.person_id = p.id AND r.state IN ('queued', 'launching', 'running') AND r.counts
        ORDER BY r.fair_at DESC LIMIT 1
    ) last ON true
    WHERE p.id = the_person;
    seen := ROW(person, role, banned_at, ban_reason, name, closed_at, deadline_at, zone, visibility, accepts_jobs,
        fair_at, cost_s, invited, extended_to, most_per_hour, quota_gpu_s, team<name>)::text;
END $$
"""


def facts(**more: str) -> str:
    found = FACTS
    for name in ("out", "column", "name", "extended"):
        found = found.replace(f"<{name}>", more.get(name, ""))
    return found.strip()


def upgrade() -> None:
    op.add_column("leaderboard", sa.Column("late_until", sa.DateTime(timezone=True), nullable=True))
    for name in ("late_grace_s", "late_percent"):
        op.add_column("leaderboard", sa.Column(name, sa.Double(), server_default=sa.text("0"), nullable=False))
    op.add_column("leaderboard", sa.Column("late_per", sa.Text(), server_default=sa.text("'day'"), nullable=False))
    op.add_column("leaderboard", sa.Column("slip_days", sa.Integer(), server_default=sa.text("0"), nullable=False))
    op.add_column("leaderboard", sa.Column("frozen_at", sa.DateTime(timezone=True), nullable=True))
    op.create_check_constraint(op.f("ck_leaderboard_late_per"), "leaderboard", "late_per IN ('hour', 'day')")
    op.create_table(
        "section_extension",
        sa.Column("board_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("section", sa.Text(), nullable=False),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["board_id"], ["leaderboard.id"], name=op.f("fk_section_extension_board_id")),
        sa.PrimaryKeyConstraint("board_id", "section", name=op.f("pk_section_extension")),
    )
    op.create_table(
        "finalisation",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("board_id", sa.BigInteger(), nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("withdrawn_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["board_id"], ["leaderboard.id"], name=op.f("fk_finalisation_board_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_finalisation")),
    )
    op.create_index("ix_finalisation_board", "finalisation", ["board_id", "id"], unique=False)
    op.create_table(
        "fixed_place",
        sa.Column("finalisation_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("run_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("score_s", sa.Double(), nullable=False),
        sa.Column("low_s", sa.Double(), nullable=False),
        sa.Column("high_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["finalisation_id"], ["finalisation.id"], name=op.f("fk_fixed_place_finalisation_id")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_fixed_place_run_id")),
        sa.PrimaryKeyConstraint("finalisation_id", "run_id", name=op.f("pk_fixed_place")),
    )
    op.execute(EXTENDED_TO.strip())
    op.execute("DROP FUNCTION kb_facts")
    op.execute(
        facts(
            out="OUT late_until timestamptz, ",
            column=", b.late_until",
            name=", late_until",
            extended="kb_extended_to(b.id, p.id)",
        )
    )


def downgrade() -> None:
    op.execute("DROP FUNCTION kb_facts")
    op.execute(facts(extended="(SELECT e.deadline_at FROM extension e WHERE e.board_id = b.id AND e.person_id = p.id)"))
    op.execute("DROP FUNCTION kb_extended_to")
    op.drop_table("fixed_place")
    op.drop_table("finalisation")
    op.drop_table("section_extension")
    for name in ("frozen_at", "slip_days", "late_per", "late_percent", "late_grace_s", "late_until"):
        op.drop_column("leaderboard", name)
