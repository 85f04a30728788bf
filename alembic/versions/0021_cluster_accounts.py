"""Cluster accounts: who pays for a person's jobs, where a cluster charges each person's own account"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("person", sa.Column("cluster_account", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("person", "cluster_account")
