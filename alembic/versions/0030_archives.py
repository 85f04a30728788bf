"""Archives: which were written, so that deleting a person can list those to write again"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "archive",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("board_id", sa.BigInteger(), nullable=False),
        sa.Column("private", sa.Boolean(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("written_by", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["board_id"], ["leaderboard.id"], name=op.f("fk_archive_board_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_archive")),
    )
    op.create_index("ix_archive_board_id", "archive", ["board_id"], unique=False)


def downgrade() -> None:
    op.drop_table("archive")
