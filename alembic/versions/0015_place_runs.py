"""Place runs: why an attempt is where it is, what it costs, whether it ranks; runs that were ordered to one place"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

ENDINGS = (
    "'reported', 'timeout', 'memory', 'node_failure', 'preempted', 'boot_failure', 'image', 'no_report', 'bad_report',"
    " 'cancelled', 'refused', 'vanished', 'unsteady'"
)


def upgrade() -> None:
    op.add_column("run", sa.Column("pinned", sa.Text(), nullable=True))
    op.add_column("attempt", sa.Column("why_here", sa.Text(), server_default=sa.text("''"), nullable=False))
    op.add_column("attempt", sa.Column("gpu_class", sa.Text(), server_default=sa.text("''"), nullable=False))
    op.add_column("attempt", sa.Column("price", sa.Double(), server_default=sa.text("0"), nullable=False))
    op.add_column("attempt", sa.Column("reserve_s", sa.Double(), server_default=sa.text("0"), nullable=False))
    op.add_column("attempt", sa.Column("ranks", sa.Boolean(), server_default=sa.text("true"), nullable=False))
    op.add_column("attempt", sa.Column("withdraw_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index("ix_attempt_paid", "attempt", ["opened_at"], postgresql_where=sa.text("price > 0"))
    op.drop_constraint(op.f("ck_attempt_ending"), "attempt", type_="check")
    op.create_check_constraint(op.f("ck_attempt_ending"), "attempt", f"ending IN ({ENDINGS}, 'withdrawn')")
    op.create_table(
        "shadow",
        sa.Column("run_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("of_run_id", sa.BigInteger(), nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["of_run_id"], ["run.id"], name=op.f("fk_shadow_of_run_id")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_shadow_run_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_shadow")),
    )
    op.create_index(op.f("ix_shadow_of_run_id"), "shadow", ["of_run_id"])


def downgrade() -> None:
    op.drop_table("shadow")
    op.execute("UPDATE attempt SET ending = 'cancelled' WHERE ending = 'withdrawn'")
    op.drop_constraint(op.f("ck_attempt_ending"), "attempt", type_="check")
    op.create_check_constraint(op.f("ck_attempt_ending"), "attempt", f"ending IN ({ENDINGS})")
    op.drop_index("ix_attempt_paid", "attempt")
    for name in ("withdraw_at", "ranks", "reserve_s", "price", "gpu_class", "why_here"):
        op.drop_column("attempt", name)
    op.drop_column("run", "pinned")
