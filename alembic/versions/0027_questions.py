"""Questions and appeals"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "question",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("board_id", sa.BigInteger(), nullable=False),
        sa.Column("person_id", sa.BigInteger(), nullable=False),
        sa.Column("submission_id", sa.BigInteger(), nullable=True),
        sa.Column("appeal", sa.Boolean(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'open'"), nullable=False),
        sa.Column("answer", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("to_all", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("answered_by", sa.Text(), nullable=True),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("rejudging_id", sa.BigInteger(), nullable=True),
        sa.Column("outcome", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.CheckConstraint("state IN ('open', 'answered', 'closed')", name=op.f("ck_question_state")),
        sa.CheckConstraint("NOT appeal OR submission_id IS NOT NULL", name=op.f("ck_question_appeal")),
        sa.ForeignKeyConstraint(["board_id"], ["leaderboard.id"], name=op.f("fk_question_board_id")),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name=op.f("fk_question_person_id")),
        sa.ForeignKeyConstraint(["rejudging_id"], ["rejudging.id"], name=op.f("fk_question_rejudging_id")),
        sa.ForeignKeyConstraint(["submission_id"], ["submission.id"], name=op.f("fk_question_submission_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_question")),
    )
    op.create_index("ix_question_board", "question", ["board_id", "id"], unique=False)
    op.create_index("ix_question_person", "question", ["person_id", "asked_at"], unique=False)
    op.create_index(
        "uq_question_appeal",
        "question",
        ["submission_id"],
        unique=True,
        postgresql_where=sa.text("appeal AND state = 'open'"),
    )


def downgrade() -> None:
    op.drop_table("question")
