"""Keep what a profile left, for its author, for some days"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "artifact",
        sa.Column("attempt_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_artifact_attempt_id")),
        sa.PrimaryKeyConstraint("attempt_id", "name", name=op.f("pk_artifact")),
    )
    op.create_index(op.f("ix_artifact_at"), "artifact", ["at"])


def downgrade() -> None:
    op.drop_table("artifact")
