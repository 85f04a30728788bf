"""The harness that took a baseline's time: a chart is of one, since another may take it otherwise"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("baseline_point", sa.Column("harness", sa.Text(), server_default="", nullable=False))


def downgrade() -> None:
    op.drop_column("baseline_point", "harness")
