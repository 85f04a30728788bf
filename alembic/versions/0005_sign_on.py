"""Sign-on: accounts of a university's provider, and states that were used"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "oidc_account",
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("person_id", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name=op.f("fk_oidc_account_person_id")),
        sa.PrimaryKeyConstraint("issuer", "subject", name=op.f("pk_oidc_account")),
    )
    op.create_index("ix_oidc_account_person_id", "oidc_account", ["person_id"])
    op.create_table(
        "used_state",
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_used_state")),
    )


def downgrade() -> None:
    op.drop_table("used_state")
    op.drop_table("oidc_account")
