"""Find where a run was refused without reading every attempt"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_attempt_refused", "attempt", ["run_id", "backend"], postgresql_where=sa.text("state = 'refused'")
    )


def downgrade() -> None:
    op.drop_index("ix_attempt_refused", "attempt")
