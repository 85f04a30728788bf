"""Count the GPUs that an attempt is on: a problem of several ranks takes as many slots"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("problem_version", sa.Column("ranks", sa.Integer(), server_default=sa.text("1"), nullable=False))
    op.add_column("attempt", sa.Column("gpus", sa.Integer(), server_default=sa.text("1"), nullable=False))


def downgrade() -> None:
    op.drop_column("attempt", "gpus")
    op.drop_column("problem_version", "ranks")
