"""Attempts that ended because their place gave them less than their problem needs"""

from __future__ import annotations

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

ENDINGS = (
    "'reported', 'timeout', 'memory', 'node_failure', 'preempted', 'boot_failure', 'image', 'no_report', 'bad_report',"
    " 'cancelled', 'refused', 'vanished', 'unsteady', 'withdrawn'"
)


def upgrade() -> None:
    op.drop_constraint(op.f("ck_attempt_ending"), "attempt", type_="check")
    op.create_check_constraint(op.f("ck_attempt_ending"), "attempt", f"ending IN ({ENDINGS}, 'misconfigured')")


def downgrade() -> None:
    op.execute("UPDATE attempt SET ending = 'no_report' WHERE ending = 'misconfigured'")
    op.drop_constraint(op.f("ck_attempt_ending"), "attempt", type_="check")
    op.create_check_constraint(op.f("ck_attempt_ending"), "attempt", f"ending IN ({ENDINGS})")
