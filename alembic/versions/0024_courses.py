"""Courses: who is on the roster of one, in which section and team, and who helps on a board; what can be erased of a
person is in a table of its own"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

TEAM_BEFORE = """
CREATE OR REPLACE FUNCTION kb_team() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT p.team INTO NEW.team FROM person p WHERE p.id = NEW.person_id;
    RETURN NEW;
END $$
"""
TEAM_OF_COURSE = """
CREATE OR REPLACE FUNCTION kb_team() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.team := kb_team_of(NEW.person_id, NEW.board_id);
    RETURN NEW;
END $$
"""
TEAM_OF = """
CREATE FUNCTION kb_team_of(the_person bigint, the_board bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN r.person_id IS NULL THEN p.team ELSE r.team END
    FROM person p JOIN leaderboard b ON b.id = the_board
    LEFT JOIN roster r ON r.person_id = p.id AND r.course = b.course
    WHERE p.id = the_person
$$
"""
FACTS = """
CREATE FUNCTION kb_facts(the_person bigint, the_board bigint, the_category text,
    OUT person text, OUT banned_at timestamptz, OUT ban_reason text, OUT name text, OUT closed_at timestamptz,
    OUT deadline_at timestamptz, OUT zone text, OUT visibility text, OUT accepts_jobs jsonb, OUT fair_at timestamptz,
    OUT cost_s double precision, OUT invited boolean, OUT extended_to timestamptz, OUT most_per_hour integer,
    OUT quota_gpu_s double precision,{team_out} OUT seen text
) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE role text;
BEGIN
    SELECT p.name, p.role, p.banned_at, p.ban_reason, b.name, b.closed_at, b.deadline_at, b.zone, b.visibility,
        (SELECT s.value FROM setting s WHERE s.key = 'accepts_jobs'), last.fair_at, last.cost_s,
        EXISTS (SELECT 1 FROM invite i JOIN invite_board ib ON ib.invite_id = i.id
            WHERE i.person_id = p.id AND i.revoked_at IS NULL AND ib.board_id = b.id){member},
        (SELECT e.deadline_at FROM extension e WHERE e.board_id = b.id AND e.person_id = p.id),
        (SELECT l.most_per_hour FROM rate_limit l WHERE l.board_id = b.id AND l.category = the_category),
        (SELECT q.gpu_s_per_day FROM quota q WHERE q.board_id = b.id){team_column}
    INTO person, role, banned_at, ban_reason, name, closed_at, deadline_at, zone, visibility, accepts_jobs, fair_at,
        cost_s, invited, extended_to, most_per_hour, quota_gpu_s{team}
    FROM person p LEFT JOIN leaderboard b ON b.id = the_board AND b.deleted_at IS NULL
    LEFT JOIN LATERAL (
        SELECT r.fair_at, r.cost_s FROM run r
        WHERE r.person_id = p.id AND r.state IN ('queued', 'launching', 'running') AND r.counts
        ORDER BY r.fair_at DESC LIMIT 1
    ) last ON true
    WHERE p.id = the_person;
    seen := ROW(person, role, banned_at, ban_reason, name, closed_at, deadline_at, zone, visibility, accepts_jobs,
        fair_at, cost_s, invited, extended_to, most_per_hour, quota_gpu_s{team})::text;
END $$
"""
FACTS_BEFORE = FACTS.format(team_out="", member="", team_column="", team="")
FACTS_WITH_COURSES = FACTS.format(
    team_out=" OUT team text,",
    member="""
            OR EXISTS (SELECT 1 FROM roster m WHERE m.person_id = p.id AND m.course = b.course)
            OR EXISTS (SELECT 1 FROM board_role h WHERE h.person_id = p.id AND h.board_id = b.id)""",
    team_column=""",
        CASE WHEN b.teams THEN kb_team_of(p.id, b.id) END""",
    team=", team",
)


def facts(body: str) -> None:
    op.execute("DROP FUNCTION kb_facts")  # its answer has other columns
    op.execute(body.strip())


def upgrade() -> None:
    op.create_table(
        "personal_data",
        sa.Column("person_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("full_name", sa.Text(), nullable=True),
        sa.Column("email", sa.Text(), nullable=True),
        sa.Column("student_id", sa.Text(), nullable=True),
        sa.Column("extra", JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name=op.f("fk_personal_data_person_id")),
        sa.PrimaryKeyConstraint("person_id", name=op.f("pk_personal_data")),
    )
    op.create_index("uq_personal_data_email", "personal_data", [sa.text("lower(email)")], unique=True)
    op.create_index("uq_personal_data_student_id", "personal_data", [sa.text("lower(student_id)")], unique=True)
    op.create_table(
        "roster",
        sa.Column("course", sa.Text(), nullable=False),
        sa.Column("person_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("section", sa.Text(), nullable=True),
        sa.Column("team", sa.Text(), nullable=True),
        sa.Column("role", sa.Text(), server_default=sa.text("'student'"), nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "role IN ('student', 'owner', 'assistant', 'grader', 'observer')", name=op.f("ck_roster_role")
        ),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name=op.f("fk_roster_person_id")),
        sa.PrimaryKeyConstraint("course", "person_id", name=op.f("pk_roster")),
    )
    op.create_index("ix_roster_person_id", "roster", ["person_id"])
    op.create_table(
        "board_role",
        sa.Column("board_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("person_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.CheckConstraint("role IN ('owner', 'assistant', 'grader', 'observer')", name=op.f("ck_board_role_role")),
        sa.ForeignKeyConstraint(["board_id"], ["leaderboard.id"], name=op.f("fk_board_role_board_id")),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name=op.f("fk_board_role_person_id")),
        sa.PrimaryKeyConstraint("board_id", "person_id", name=op.f("pk_board_role")),
    )
    op.create_index("ix_board_role_person_id", "board_role", ["person_id"])
    op.add_column("leaderboard", sa.Column("course", sa.Text(), nullable=True))
    op.add_column("leaderboard", sa.Column("teams", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.drop_constraint(op.f("ck_token_kind"), "token", type_="check")
    op.create_check_constraint(op.f("ck_token_kind"), "token", "kind IN ('cli', 'web', 'api', 'pending', 'invite')")
    # Only submissions of teams are in it, so that building it takes one look at each row and no more.
    op.create_index(
        "ix_submission_team",
        "submission",
        ["board_id", "team", "accepted_at"],
        postgresql_where=sa.text("team IS NOT NULL"),
    )
    op.execute(TEAM_OF.strip())
    op.execute(TEAM_OF_COURSE.strip())
    facts(FACTS_WITH_COURSES)


def downgrade() -> None:
    facts(FACTS_BEFORE)
    op.execute(TEAM_BEFORE.strip())
    op.execute("DROP FUNCTION kb_team_of")
    op.drop_index("ix_submission_team", "submission")
    op.execute("DELETE FROM token WHERE kind = 'invite'")
    op.drop_constraint(op.f("ck_token_kind"), "token", type_="check")
    op.create_check_constraint(op.f("ck_token_kind"), "token", "kind IN ('cli', 'web', 'api', 'pending')")
    op.drop_column("leaderboard", "teams")
    op.drop_column("leaderboard", "course")
    op.drop_table("board_role")
    op.drop_table("roster")
    op.drop_table("personal_data")
