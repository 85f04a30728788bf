"""Keepers: jobs that hold a GPU for a while; attempts that run in one, and runs and boards that mustn't"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

ENDINGS = (
    "'reported', 'timeout', 'memory', 'node_failure', 'preempted', 'boot_failure', 'image', 'no_report', 'bad_report',"
    " 'cancelled', 'refused', 'vanished', 'unsteady', 'withdrawn', 'misconfigured'"
)
KEEPER_STATES = "'asked', 'intent', 'ambiguous', 'submitted', 'holding', 'draining', 'ended', 'refused'"
KEEPER_ENDINGS = (
    "'idle', 'life', 'gave_back', 'drained', 'preempted', 'node_failure', 'cancelled', 'unfit', 'failed', 'refused',"
    " 'vanished'"
)
OPEN = "state IN ('asked', 'intent', 'ambiguous', 'submitted', 'holding', 'draining')"
OPEN_ATTEMPT = "state IN ('intent', 'ambiguous', 'submitted', 'running')"


def upgrade() -> None:
    op.create_table(
        "keeper",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("gpu", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'intent'"), nullable=False),
        sa.Column("handle", sa.Text(), nullable=True),
        sa.Column("life_s", sa.Double(), nullable=False),
        sa.Column("idle_s", sa.Double(), nullable=False),
        sa.Column("why", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=True),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expected_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("clean_sweeps", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("swept_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("node", sa.Text(), nullable=True),
        sa.Column("drain_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("drain_as", sa.Text(), nullable=True),
        sa.Column("drain_why", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("looked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("others", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("others_why", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("ending", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.CheckConstraint(f"state IN ({KEEPER_STATES})", name=op.f("ck_keeper_state")),
        sa.CheckConstraint(f"ending IN ({KEEPER_ENDINGS})", name=op.f("ck_keeper_ending")),
        sa.CheckConstraint(f"drain_as IN ({KEEPER_ENDINGS})", name=op.f("ck_keeper_drain_as")),
        sa.CheckConstraint("others IN ('', 'yes', 'no', 'unknown')", name=op.f("ck_keeper_others")),
        sa.CheckConstraint(f"(ended_at IS NULL) = ({OPEN})", name=op.f("ck_keeper_ended")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_keeper")),
        sa.UniqueConstraint("name", name=op.f("uq_keeper_name")),
    )
    op.create_index("ix_keeper_open", "keeper", ["id"], postgresql_where=sa.text(OPEN))
    op.create_index("ix_keeper_held", "keeper", ["backend", "gpu", "ended_at"])
    op.add_column("attempt", sa.Column("keeper_id", sa.BigInteger(), nullable=True))
    op.create_foreign_key(op.f("fk_attempt_keeper_id"), "attempt", "keeper", ["keeper_id"], ["id"])
    op.create_index(
        "uq_attempt_in_keeper",
        "attempt",
        ["keeper_id"],
        unique=True,
        postgresql_where=sa.text(f"keeper_id IS NOT NULL AND {OPEN_ATTEMPT}"),
    )
    op.create_index("ix_attempt_keeper", "attempt", ["keeper_id"], postgresql_where=sa.text("keeper_id IS NOT NULL"))
    op.drop_constraint(op.f("ck_attempt_ending"), "attempt", type_="check")
    op.create_check_constraint(op.f("ck_attempt_ending"), "attempt", f"ending IN ({ENDINGS}, 'keeper_left')")
    op.add_column("run", sa.Column("cold", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.add_column("leaderboard", sa.Column("cold", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.add_column("shadow", sa.Column("way", sa.Text(), server_default=sa.text("''"), nullable=False))


def downgrade() -> None:
    op.drop_column("shadow", "way")
    op.drop_column("leaderboard", "cold")
    op.drop_column("run", "cold")
    op.execute("UPDATE attempt SET ending = 'preempted' WHERE ending = 'keeper_left'")
    op.drop_constraint(op.f("ck_attempt_ending"), "attempt", type_="check")
    op.create_check_constraint(op.f("ck_attempt_ending"), "attempt", f"ending IN ({ENDINGS})")
    op.drop_index("ix_attempt_keeper", "attempt")
    op.drop_index("uq_attempt_in_keeper", "attempt")
    op.drop_column("attempt", "keeper_id")
    op.drop_table("keeper")
