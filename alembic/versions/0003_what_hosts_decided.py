"""What hosts decided: limits, quotas, extensions, invitations; and a source that was taken back can be purged"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

KEPT = "person_id, board_id, mode, file_name, {}sha256, via, by_staff, accepted_at"


def moment(name: str, *, null: bool = True) -> sa.Column:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=null)


def to(name: str, target: str, table: str, *, null: bool = False, key: bool = False) -> sa.Column:
    known = sa.ForeignKey(f"{target}.id", name=op.f(f"fk_{table}_{name}"))
    return sa.Column(name, sa.BigInteger(), known, nullable=null, primary_key=key, autoincrement=False)


def upgrade() -> None:
    op.create_table(
        "rate_limit",
        to("board_id", "leaderboard", "rate_limit"),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("most_per_hour", sa.Integer(), nullable=False),
        sa.CheckConstraint("category IN ('test', 'leaderboard')", name=op.f("ck_rate_limit_category")),
        sa.PrimaryKeyConstraint("board_id", "category", name=op.f("pk_rate_limit")),
    )
    op.create_table(
        "quota",
        to("board_id", "leaderboard", "quota"),
        sa.Column("gpu_s_per_day", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("board_id", name=op.f("pk_quota")),
    )
    op.create_table(
        "extension",
        to("board_id", "leaderboard", "extension"),
        to("person_id", "person", "extension"),
        moment("deadline_at", null=False),
        sa.PrimaryKeyConstraint("board_id", "person_id", name=op.f("pk_extension")),
    )
    op.create_table(
        "invite",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        to("person_id", "person", "invite", null=True),
        moment("created_at", null=False),
        moment("claimed_at"),
        moment("revoked_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invite")),
        sa.UniqueConstraint("code", name=op.f("uq_invite_code")),
    )
    op.create_index("ix_invite_person_id", "invite", ["person_id"])
    op.create_table(
        "invite_board",
        to("invite_id", "invite", "invite_board"),
        to("board_id", "leaderboard", "invite_board"),
        sa.PrimaryKeyConstraint("invite_id", "board_id", name=op.f("pk_invite_board")),
    )
    op.create_index("ix_invite_board_board_id", "invite_board", ["board_id"])
    op.execute("DROP TRIGGER submission_kept ON submission")
    op.execute(
        f"CREATE TRIGGER submission_kept BEFORE UPDATE OF {KEPT.format('')} ON submission"
        " FOR EACH ROW EXECUTE FUNCTION kb_kept()"
    )
    op.execute(
        "CREATE TRIGGER submission_source_kept BEFORE UPDATE OF source ON submission FOR EACH ROW"
        " WHEN (NEW.source <> '' OR NEW.removed_at IS NULL) EXECUTE FUNCTION kb_kept()"
    )


def downgrade() -> None:
    op.execute("DROP TRIGGER submission_source_kept ON submission")
    op.execute("DROP TRIGGER submission_kept ON submission")
    op.execute(
        f"CREATE TRIGGER submission_kept BEFORE UPDATE OF {KEPT.format('source, ')} ON submission"
        " FOR EACH ROW EXECUTE FUNCTION kb_kept()"
    )
    for table in ("invite_board", "invite", "extension", "quota", "rate_limit"):
        op.drop_table(table)
