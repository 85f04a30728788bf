"""Jobs that nodes of a place claim at our API"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "node_job",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("lease_s", sa.Double(), nullable=False),
        sa.Column("sealed_order", sa.LargeBinary(), nullable=True),
        sa.Column("offered_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("forbidden_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("claimant", sa.Text(), nullable=True),
        sa.Column("node", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("heard_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "progress", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.Column("result", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint("(claimant IS NULL) = (claimed_at IS NULL)", name=op.f("ck_node_job_claimed")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_node_job")),
    )
    op.create_index(op.f("ix_node_job_place_offered_at"), "node_job", ["place", "offered_at"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_node_job_place_offered_at"), table_name="node_job")
    op.drop_table("node_job")
