"""Who takes part and who sees whom: boards for teams alone, practice after the end, pseudonyms, nicknames and hidden standings"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

# Boards are few, so that each may be given a key of its own.
NEW_KEY = "replace((gen_random_uuid())::text, '-'::text, ''::text)"


def upgrade() -> None:
    op.add_column("leaderboard", sa.Column("names", sa.Text(), server_default=sa.text("'real'"), nullable=False))
    op.add_column("leaderboard", sa.Column("names_key", sa.Text(), server_default=sa.text(NEW_KEY), nullable=False))
    op.add_column("leaderboard", sa.Column("standings", sa.Text(), server_default=sa.text("'shown'"), nullable=False))
    op.add_column("leaderboard", sa.Column("teams_only", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("leaderboard", sa.Column("practice", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("submission", sa.Column("practice", sa.Boolean(), nullable=True))  # rewrites nothing
    op.execute(
        "CREATE TRIGGER submission_practice_kept BEFORE UPDATE OF practice ON submission FOR EACH ROW"
        " WHEN (OLD.practice IS NOT NULL) EXECUTE FUNCTION kb_kept()"
    )
    op.create_check_constraint(
        op.f("ck_leaderboard_names"), "leaderboard", "names IN ('real', 'nicknames', 'anonymous')"
    )
    op.create_check_constraint(
        op.f("ck_leaderboard_standings"), "leaderboard", "standings IN ('shown', 'own', 'hidden')"
    )
    op.create_table(
        "nickname",
        sa.Column("board_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("person_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("outline", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["board_id"], ["leaderboard.id"], name=op.f("fk_nickname_board_id")),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name=op.f("fk_nickname_person_id")),
        sa.PrimaryKeyConstraint("board_id", "person_id", name=op.f("pk_nickname")),
        sa.UniqueConstraint("board_id", "outline", name=op.f("uq_nickname_board_id_outline")),
    )


def downgrade() -> None:
    op.drop_table("nickname")
    op.execute("DROP TRIGGER submission_practice_kept ON submission")
    op.drop_column("submission", "practice")
    for name in ("practice", "teams_only", "standings", "names_key", "names"):
        op.drop_column("leaderboard", name)
