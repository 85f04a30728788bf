"""Attempts whose answer brought the problem's check down, and the judge with it"""

from __future__ import annotations

from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

ENDINGS = (
    "'reported', 'timeout', 'memory', 'node_failure', 'preempted', 'boot_failure', 'image', 'no_report', 'bad_report',"
    " 'cancelled', 'refused', 'vanished', 'unsteady', 'withdrawn', 'misconfigured', 'keeper_left'"
)


def upgrade() -> None:
    op.drop_constraint(op.f("ck_attempt_ending"), "attempt", type_="check")
    op.create_check_constraint(op.f("ck_attempt_ending"), "attempt", f"ending IN ({ENDINGS}, 'check_died')")


def downgrade() -> None:
    op.execute("UPDATE attempt SET ending = 'no_report' WHERE ending = 'check_died'")
    op.drop_constraint(op.f("ck_attempt_ending"), "attempt", type_="check")
    op.create_check_constraint(op.f("ck_attempt_ending"), "attempt", f"ending IN ({ENDINGS})")
