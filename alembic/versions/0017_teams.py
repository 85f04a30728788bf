"""Teams: a person is in one or in none, and each submission keeps the one that its author was in then"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

KEPT = "person_id, board_id, mode, file_name, sha256, via, by_staff, accepted_at"
STAMP = """
CREATE FUNCTION kb_team() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT p.team INTO NEW.team FROM person p WHERE p.id = NEW.person_id;
    RETURN NEW;
END $$
"""


def keep(columns: str) -> None:
    op.execute("DROP TRIGGER submission_kept ON submission")
    op.execute(
        f"CREATE TRIGGER submission_kept BEFORE UPDATE OF {columns} ON submission"
        " FOR EACH ROW EXECUTE FUNCTION kb_kept()"
    )


def upgrade() -> None:
    op.add_column("person", sa.Column("team", sa.Text(), nullable=True))
    op.add_column("submission", sa.Column("team", sa.Text(), nullable=True))
    op.execute(STAMP.strip())
    op.execute("CREATE TRIGGER submission_team BEFORE INSERT ON submission FOR EACH ROW EXECUTE FUNCTION kb_team()")
    keep(f"{KEPT}, team")


def downgrade() -> None:
    keep(KEPT)
    op.execute("DROP TRIGGER submission_team ON submission")
    op.execute("DROP FUNCTION kb_team")
    op.drop_column("submission", "team")
    op.drop_column("person", "team")
