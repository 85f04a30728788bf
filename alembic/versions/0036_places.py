"""Places that drain, and what the daemon's log said of each place"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "place_drain",
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("gpu", sa.Text(), nullable=False),
        sa.Column("drained_by", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("place", "gpu", name=op.f("pk_place_drain")),
    )
    op.create_table(
        "place_line",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_place_line")),
    )
    op.create_index(op.f("ix_place_line_place"), "place_line", ["place", "id"])


def downgrade() -> None:
    op.drop_table("place_line")
    op.drop_table("place_drain")
