"""The audit log is append-only: what a host did can't be deleted either"""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TRIGGER event_audit_kept BEFORE DELETE ON event FOR EACH ROW WHEN (OLD.kind LIKE 'staff.%')"
        " EXECUTE FUNCTION kb_kept()"
    )
    op.execute(
        "CREATE TRIGGER event_never_emptied BEFORE TRUNCATE ON event FOR EACH STATEMENT EXECUTE FUNCTION kb_kept()"
    )


def downgrade() -> None:
    op.execute("DROP TRIGGER event_never_emptied ON event")
    op.execute("DROP TRIGGER event_audit_kept ON event")
