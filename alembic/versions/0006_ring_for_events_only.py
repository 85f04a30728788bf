"""Ring for events only: a statement that writes none, like a claim in vain, wakes nobody"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("DROP TRIGGER event_news ON event")
    op.execute("CREATE TRIGGER event_news AFTER INSERT ON event FOR EACH ROW EXECUTE FUNCTION kb_news()")


def downgrade() -> None:
    op.execute("DROP TRIGGER event_news ON event")
    op.execute("CREATE TRIGGER event_news AFTER INSERT ON event FOR EACH STATEMENT EXECUTE FUNCTION kb_news()")
