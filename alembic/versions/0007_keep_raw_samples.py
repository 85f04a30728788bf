"""Keep the raw samples of every timed attempt, so that its figures can be computed again"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "raw_samples",
        sa.Column("attempt_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_raw_samples_attempt_id")),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_raw_samples")),
    )


def downgrade() -> None:
    op.drop_table("raw_samples")
