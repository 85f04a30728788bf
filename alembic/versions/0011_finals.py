"""Finals: the leaders of a board head to head in one job, beside the scores that they have"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "final",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("board_id", sa.BigInteger(), nullable=False),
        sa.Column("problem_version_id", sa.BigInteger(), nullable=False),
        sa.Column("gpu", sa.Text(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'open'"), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('open', 'applied', 'forgotten')", name=op.f("ck_final_state")),
        sa.ForeignKeyConstraint(["board_id"], ["leaderboard.id"], name=op.f("fk_final_board_id")),
        sa.ForeignKeyConstraint(
            ["problem_version_id"], ["problem_version.id"], name=op.f("fk_final_problem_version_id")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_final_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_final")),
        sa.UniqueConstraint("run_id", name=op.f("uq_final_run_id")),
    )
    op.create_index(
        "uq_final_open", "final", ["board_id", "gpu"], unique=True, postgresql_where=sa.text("state = 'open'")
    )
    op.create_table(
        "final_rival",
        sa.Column("final_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["final_id"], ["final.id"], name=op.f("fk_final_rival_final_id")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_final_rival_run_id")),
        sa.PrimaryKeyConstraint("final_id", "place", name=op.f("pk_final_rival")),
    )
    op.create_table(
        "final_score",
        sa.Column("run_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("final_id", sa.BigInteger(), nullable=False),
        sa.Column("score_s", sa.Double(), nullable=False),
        sa.Column("low_s", sa.Double(), nullable=False),
        sa.Column("high_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["final_id"], ["final.id"], name=op.f("fk_final_score_final_id")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_final_score_run_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_final_score")),
    )


def downgrade() -> None:
    op.drop_table("final_score")
    op.drop_table("final_rival")
    op.drop_table("final")
