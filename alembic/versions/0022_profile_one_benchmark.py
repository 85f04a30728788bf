"""Profile one benchmark: which one, of a submission that asks for it"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("submission", sa.Column("benchmark", sa.Integer(), nullable=True))
    # It is set in the transaction that accepts the submission, and never again.
    op.execute(
        "CREATE TRIGGER submission_benchmark_kept BEFORE UPDATE OF benchmark ON submission FOR EACH ROW"
        " WHEN (OLD.benchmark IS NOT NULL) EXECUTE FUNCTION kb_kept()"
    )


def downgrade() -> None:
    op.execute("DROP TRIGGER submission_benchmark_kept ON submission")
    op.drop_column("submission", "benchmark")
