"""Judge again: runs that don't count until a host applies them, in one act"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rejudging",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("board_id", sa.BigInteger(), nullable=False),
        sa.Column("problem_version_id", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'open'"), nullable=False),
        sa.Column("wanted", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('open', 'applied', 'cancelled')", name=op.f("ck_rejudging_state")),
        sa.ForeignKeyConstraint(["board_id"], ["leaderboard.id"], name=op.f("fk_rejudging_board_id")),
        sa.ForeignKeyConstraint(
            ["problem_version_id"], ["problem_version.id"], name=op.f("fk_rejudging_problem_version_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rejudging")),
    )
    op.create_index(
        "uq_rejudging_open", "rejudging", ["board_id"], unique=True, postgresql_where=sa.text("state = 'open'")
    )
    op.add_column("run", sa.Column("rejudging_id", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.add_column("run", sa.Column("counts", sa.Boolean(), server_default=sa.text("true"), nullable=False))
    op.drop_constraint("uq_run_submission_id_problem_version_id_gpu", "run", type_="unique")
    op.create_unique_constraint(
        op.f("uq_run_once"), "run", ["submission_id", "problem_version_id", "gpu", "rejudging_id"]
    )
    op.create_index("ix_run_rejudged", "run", ["rejudging_id"], postgresql_where=sa.text("rejudging_id <> 0"))


def downgrade() -> None:
    """Runs that were judged again lose their place in the history with their column; what counts, stays."""
    # What was judged again and doesn't count goes, and of two that share a key the one that doesn't count.
    gone = (
        "SELECT r.id FROM run r WHERE NOT r.counts AND (r.rejudging_id <> 0 OR EXISTS (SELECT 1 FROM run n"
        " WHERE n.id <> r.id AND n.submission_id = r.submission_id AND n.gpu = r.gpu"
        " AND n.problem_version_id = r.problem_version_id))"
    )
    op.execute(f"DELETE FROM verdict WHERE run_id IN ({gone})")
    op.execute(f"DELETE FROM stale_report s USING attempt a WHERE a.id = s.attempt_id AND a.run_id IN ({gone})")
    op.execute(f"DELETE FROM attempt WHERE run_id IN ({gone})")
    op.execute(f"DELETE FROM run WHERE id IN ({gone})")
    op.drop_index("ix_run_rejudged", table_name="run")
    op.drop_constraint("uq_run_once", "run", type_="unique")
    op.create_unique_constraint(
        op.f("uq_run_submission_id_problem_version_id_gpu"), "run", ["submission_id", "problem_version_id", "gpu"]
    )
    op.drop_column("run", "counts")
    op.drop_column("run", "rejudging_id")
    op.drop_table("rejudging")
