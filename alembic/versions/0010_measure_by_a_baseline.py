"""Measure by a baseline: reference times, second measurements, and the charts of nodes"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

ENDINGS = (
    "reported", "timeout", "memory", "node_failure", "preempted", "boot_failure", "image", "no_report", "bad_report",
    "cancelled", "refused", "vanished",
)  # fmt: skip
WAITING = {"ix_run_waiting": "", "ix_run_waiting_staff": " AND by_staff"}


def _endings(names: tuple[str, ...]) -> None:
    op.drop_constraint(op.f("ck_attempt_ending"), "attempt", type_="check")
    listed = ", ".join(f"'{name}'" for name in names)
    op.create_check_constraint(op.f("ck_attempt_ending"), "attempt", f"ending IN ({listed})")


def _waiting(held: str) -> None:
    for name, more in WAITING.items():
        op.drop_index(name, table_name="run")
        where = sa.text(f"state = 'queued'{held}{more}")
        op.create_index(name, "run", ["gpu", "fair_at", "id"], postgresql_where=where)


def upgrade() -> None:
    no, yes = sa.text("false"), sa.text("true")
    op.add_column("problem_version", sa.Column("paired", sa.Boolean(), server_default=no, nullable=False))
    op.add_column("leaderboard", sa.Column("confirm", sa.Boolean(), server_default=yes, nullable=False))
    op.add_column("run", sa.Column("second", sa.Boolean(), server_default=no, nullable=False))
    op.add_column("run", sa.Column("held", sa.Boolean(), server_default=no, nullable=False))
    op.add_column("run", sa.Column("may_rank", sa.Boolean(), server_default=yes, nullable=False))
    op.execute("UPDATE problem_version SET paired = true WHERE content -> 'config' ? 'baseline'")
    op.drop_constraint("uq_run_once", "run", type_="unique")
    op.create_unique_constraint(
        op.f("uq_run_once"), "run", ["submission_id", "problem_version_id", "gpu", "rejudging_id", "second"]
    )
    op.create_index("ix_run_held", "run", ["id"], postgresql_where=sa.text("held"))
    op.create_index("ix_run_seconds", "run", ["person_id"], postgresql_where=sa.text("second AND ended_at IS NULL"))
    _waiting(" AND NOT held")
    _endings((*ENDINGS, "unsteady"))
    op.create_table(
        "calibration",
        sa.Column("board_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("problem_version_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("gpu", sa.Text(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("b_ref_s", postgresql.ARRAY(sa.Double()), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["board_id"], ["leaderboard.id"], name=op.f("fk_calibration_board_id")),
        sa.ForeignKeyConstraint(
            ["problem_version_id"], ["problem_version.id"], name=op.f("fk_calibration_problem_version_id")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_calibration_run_id")),
        sa.PrimaryKeyConstraint("board_id", "problem_version_id", "gpu", name=op.f("pk_calibration")),
    )
    op.execute("CREATE TRIGGER calibration_kept BEFORE UPDATE ON calibration FOR EACH ROW EXECUTE FUNCTION kb_kept()")
    op.create_table(
        "baseline_point",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("attempt_id", sa.BigInteger(), nullable=False),
        sa.Column("person_id", sa.BigInteger(), nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("gpu", sa.Text(), nullable=False),
        sa.Column("problem_version_id", sa.BigInteger(), nullable=False),
        sa.Column("level", sa.Double(), nullable=False),
        sa.Column("inside", sa.Boolean(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_baseline_point_attempt_id")),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name=op.f("fk_baseline_point_person_id")),
        sa.ForeignKeyConstraint(
            ["problem_version_id"], ["problem_version.id"], name=op.f("fk_baseline_point_problem_version_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_baseline_point")),
        sa.UniqueConstraint("attempt_id", name=op.f("uq_baseline_point_attempt_id")),
    )
    op.create_index("ix_baseline_point_chart", "baseline_point", ["backend", "node", "gpu", "problem_version_id", "id"])


def downgrade() -> None:
    """First measurements whose second one counts go, and what the house measured for itself loses its meaning."""
    op.drop_table("baseline_point")
    op.drop_table("calibration")
    op.execute("UPDATE attempt SET ending = 'no_report' WHERE ending = 'unsteady'")
    _endings(ENDINGS)
    gone = (
        "SELECT f.id FROM run f JOIN run s ON s.submission_id = f.submission_id AND s.gpu = f.gpu"
        " AND s.problem_version_id = f.problem_version_id AND s.rejudging_id = f.rejudging_id"
        " WHERE s.second AND NOT f.second"
    )
    op.execute(f"DELETE FROM verdict WHERE run_id IN ({gone})")
    for table in ("stale_report", "raw_samples"):
        op.execute(f"DELETE FROM {table} t USING attempt a WHERE a.id = t.attempt_id AND a.run_id IN ({gone})")
    op.execute(f"DELETE FROM attempt WHERE run_id IN ({gone})")
    op.execute(f"DELETE FROM run WHERE id IN ({gone})")
    _waiting("")
    op.drop_index("ix_run_seconds", table_name="run")
    op.drop_index("ix_run_held", table_name="run")
    op.drop_constraint("uq_run_once", "run", type_="unique")
    op.create_unique_constraint(
        op.f("uq_run_once"), "run", ["submission_id", "problem_version_id", "gpu", "rejudging_id"]
    )
    op.drop_column("run", "may_rank")
    op.drop_column("run", "held")
    op.drop_column("run", "second")
    op.drop_column("leaderboard", "confirm")
    op.drop_column("problem_version", "paired")
