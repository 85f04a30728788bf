"""Ranked runs that broke off, and as many measurements of a run as it takes"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

ONCE = ["submission_id", "problem_version_id", "gpu", "rejudging_id"]


def upgrade() -> None:
    op.add_column("run", sa.Column("measurement", sa.Integer(), server_default=sa.text("1"), nullable=False))
    op.add_column("run", sa.Column("broke_off", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.execute("UPDATE run SET measurement = 2 WHERE second")
    op.drop_constraint("uq_run_once", "run", type_="unique")
    op.create_unique_constraint(op.f("uq_run_once"), "run", [*ONCE, "measurement"])
    op.create_index("ix_run_broke_off", "run", ["ended_at"], postgresql_where=sa.text("broke_off"))


def downgrade() -> None:
    """Of several second measurements the one that counts stays, or the last one."""
    gone = (
        "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY submission_id, problem_version_id, gpu, rejudging_id"
        " ORDER BY counts DESC, measurement DESC) AS nth FROM run WHERE second) each WHERE nth > 1"
    )
    op.execute(f"CREATE TEMPORARY TABLE gone_run ON COMMIT DROP AS {gone}")
    op.execute("DELETE FROM verdict WHERE run_id IN (SELECT id FROM gone_run)")
    for table in ("stale_report", "raw_samples", "artifact", "baseline_point"):
        op.execute(
            f"DELETE FROM {table} t USING attempt a WHERE a.id = t.attempt_id AND a.run_id IN (SELECT id FROM gone_run)"
        )
    op.execute("DELETE FROM attempt WHERE run_id IN (SELECT id FROM gone_run)")
    op.execute("DELETE FROM run WHERE id IN (SELECT id FROM gone_run)")
    op.drop_index("ix_run_broke_off", table_name="run")
    op.drop_constraint("uq_run_once", "run", type_="unique")
    op.create_unique_constraint(op.f("uq_run_once"), "run", [*ONCE, "second"])
    op.drop_column("run", "broke_off")
    op.drop_column("run", "measurement")
