"""Publishing code: each board's rule and licence, and who agreed to it"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "board_code",
        sa.Column("board_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("licence", sa.Text(), server_default="", nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("rule IN ('never', 'deadline', 'consent')", name=op.f("ck_board_code_rule")),
        sa.ForeignKeyConstraint(["board_id"], ["leaderboard.id"], name=op.f("fk_board_code_board_id")),
        sa.PrimaryKeyConstraint("board_id", name=op.f("pk_board_code")),
    )
    op.create_table(
        "code_consent",
        sa.Column("board_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("person_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("given_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["board_id"], ["leaderboard.id"], name=op.f("fk_code_consent_board_id")),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name=op.f("fk_code_consent_person_id")),
        sa.PrimaryKeyConstraint("board_id", "person_id", name=op.f("pk_code_consent")),
    )
    op.create_index("ix_code_consent_person_id", "code_consent", ["person_id"])


def downgrade() -> None:
    op.drop_table("code_consent")
    op.drop_table("board_code")
