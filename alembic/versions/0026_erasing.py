"""Deleting people: a line of the audit log may change while somebody is erased from it, and only then"""

from __future__ import annotations

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

ALWAYS = "BEFORE UPDATE ON event FOR EACH ROW EXECUTE FUNCTION kb_kept()"
BUT_WHILE_ERASING = (
    "BEFORE UPDATE ON event FOR EACH ROW WHEN (current_setting('kbslurm.erasing', true) IS DISTINCT FROM 'on'"
    " OR NEW.id IS DISTINCT FROM OLD.id OR NEW.kind IS DISTINCT FROM OLD.kind"
    " OR NEW.subject IS DISTINCT FROM OLD.subject OR NEW.at IS DISTINCT FROM OLD.at) EXECUTE FUNCTION kb_kept()"
)


def keep(what: str) -> None:
    op.execute("DROP TRIGGER event_kept ON event")
    op.execute(f"CREATE TRIGGER event_kept {what}")


def upgrade() -> None:
    keep(BUT_WHILE_ERASING)


def downgrade() -> None:
    keep(ALWAYS)
