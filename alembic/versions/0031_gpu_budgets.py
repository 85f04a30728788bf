"""Budgets in GPU-hours at home, and what is used of them, kept beside the attempts"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

FACTS = """
CREATE FUNCTION kb_facts(the_person bigint, the_board bigint, the_category text,
    OUT person text, OUT banned_at timestamptz, OUT ban_reason text, OUT name text, OUT closed_at timestamptz,
    OUT deadline_at timestamptz, OUT zone text, OUT visibility text, OUT accepts_jobs jsonb, OUT fair_at timestamptz,
    OUT cost_s double precision, OUT invited boolean, OUT extended_to timestamptz, OUT most_per_hour integer,
    OUT quota_gpu_s double precision, OUT team text, OUT late_until timestamptz,<out>OUT seen text
) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE role text;
BEGIN
    SELECT p.name, p.role, p.banned_at, p.ban_reason, b.name, b.closed_at, b.deadline_at, b.zone, b.visibility,
        (SELECT s.value FROM setting s WHERE s.key = 'accepts_jobs'), last.fair_at, last.cost_s,
        EXISTS (SELECT 1 FROM invite i JOIN invite_board ib ON ib.invite_id = i.id
            WHERE i.person_id = p.id AND i.revoked_at IS NULL AND ib.board_id = b.id)
            OR EXISTS (SELECT 1 FROM roster m WHERE m.person_id = p.id AND m.course = b.course)
            OR EXISTS (SELECT 1 FROM board_role h WHERE h.person_id = p.id AND h.board_id = b.id),
        kb_extended_to(b.id, p.id),
        (SELECT l.most_per_hour FROM rate_limit l WHERE l.board_id = b.id AND l.category = the_category),
        (SELECT q.gpu_s_per_day FROM quota q WHERE q.board_id = b.id),
        CASE WHEN b.teams THEN kb_team_of(p.id, b.id) END, b.late_until<column>
    INTO person, role, banned_at, ban_reason, name, closed_at, deadline_at, zone, visibility, accepts_jobs, fair_at,
        cost_s, invited, extended_to, most_per_hour, quota_gpu_s, team, late_until<name>
    FROM person p LEFT JOIN leaderboard b ON b.id = the_board AND b.deleted_at IS NULL
    LEFT JOIN LATERAL (
        SELECT r.fair_at, r.cost_s FROM run r
        WHERE r.person_id = p.id AND r.state IN ('queued', 'launching', 'running') AND r.counts
        ORDER BY r.fair_at DESC LIMIT 1
    ) last ON true
    WHERE p.id = the_person;
    seen := ROW(person, role, banned_at, ban_reason, name, closed_at, deadline_at, zone, visibility, accepts_jobs,
        fair_at, cost_s, invited, extended_to, most_per_hour, quota_gpu_s, team, late_until<name>)::text;
END $$
"""
GPU_S = """
CREATE FUNCTION kb_gpu_s(a attempt) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT (a.gpus * CASE WHEN a.state IN ('intent', 'ambiguous', 'submitted', 'running') THEN 0
    WHEN a.state = 'refused' THEN 0
    WHEN a.started_at IS NOT NULL THEN greatest(0, extract(epoch FROM a.ended_at - a.started_at))
    WHEN a.state = 'cancelled' THEN 0
    WHEN a.state = 'reported'
        THEN least(a.reserve_s, greatest(0, extract(epoch FROM a.ended_at - coalesce(a.submitted_at, a.opened_at))))
    ELSE a.reserve_s END)::float8
$$
"""
USED = """
CREATE FUNCTION kb_used() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE more double precision := kb_gpu_s(NEW) - kb_gpu_s(OLD);
BEGIN
    IF NEW.away OR more = 0 THEN
        RETURN NULL;
    END IF;
    PERFORM pg_advisory_xact_lock_shared(4927314);
    INSERT INTO gpu_budget_use AS u (budget_id, person_id, gpu_s, money, at)
    SELECT g.id, s.person_id, more, more * NEW.price, coalesce(NEW.ended_at, OLD.ended_at)
    FROM run r JOIN submission s ON s.id = r.submission_id JOIN leaderboard b ON b.id = s.board_id
    JOIN gpu_budget g ON g.course = b.course
    WHERE r.id = NEW.run_id AND g.gpu IN ('', NEW.gpu) AND (g.scope = 'course' OR r.rejudging_id = 0)
        AND (g.begins_at IS NULL OR NEW.opened_at >= g.begins_at) AND (g.ends_at IS NULL OR NEW.opened_at < g.ends_at)
    ORDER BY g.id
    ON CONFLICT (budget_id, person_id) DO UPDATE SET gpu_s = u.gpu_s + excluded.gpu_s,
        money = u.money + excluded.money, at = greatest(u.at, excluded.at);
    RETURN NULL;
END $$
"""
COUNT = """
CREATE FUNCTION kb_count_budgets(the_course text, the_budget bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(4927314);
    DELETE FROM gpu_budget_use u USING gpu_budget g
    WHERE g.id = u.budget_id AND g.course = the_course AND g.id = coalesce(the_budget, g.id);
    INSERT INTO gpu_budget_use (budget_id, person_id, gpu_s, money, at)
    SELECT g.id, s.person_id, sum(kb_gpu_s(a)), sum(kb_gpu_s(a) * a.price), max(a.ended_at)
    FROM gpu_budget g JOIN leaderboard b ON b.course = g.course JOIN submission s ON s.board_id = b.id
    JOIN run r ON r.submission_id = s.id JOIN attempt a ON a.run_id = r.id
    WHERE g.course = the_course AND g.id = coalesce(the_budget, g.id) AND a.ended_at IS NOT NULL AND NOT a.away
        AND g.gpu IN ('', a.gpu) AND (g.scope = 'course' OR r.rejudging_id = 0)
        AND (g.begins_at IS NULL OR a.opened_at >= g.begins_at) AND (g.ends_at IS NULL OR a.opened_at < g.ends_at)
    GROUP BY g.id, s.person_id;
END $$
"""
COURSE_CHANGED = """
CREATE FUNCTION kb_course_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM kb_count_budgets(c.course, NULL)
    FROM (SELECT DISTINCT g.course FROM gpu_budget g WHERE g.course IN (OLD.course, NEW.course) ORDER BY g.course) c;
    RETURN NULL;
END $$
"""
TRIGGERS = {
    "attempt_used": (
        "attempt",
        (
            "AFTER UPDATE OF state, started_at, ended_at ON attempt FOR EACH ROW"
            " WHEN (OLD.ended_at IS NOT NULL OR NEW.ended_at IS NOT NULL) EXECUTE FUNCTION kb_used()"
        ),
    ),
    "leaderboard_moved": (
        "leaderboard",
        (
            "AFTER UPDATE OF course ON leaderboard FOR EACH ROW"
            " WHEN (OLD.course IS DISTINCT FROM NEW.course) EXECUTE FUNCTION kb_course_changed()"
        ),
    ),
}


def facts(out: str = " ", column: str = "", name: str = "") -> str:
    return FACTS.replace("<out>", out).replace("<column>", column).replace("<name>", name).strip()


def upgrade() -> None:
    op.add_column("attempt", sa.Column("away", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    # As configured by default; until now nothing was noted.
    op.execute("UPDATE attempt SET away = true WHERE backend IN ('github', 'modal')")
    op.create_table(
        "gpu_budget",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("course", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("section", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("person_id", sa.BigInteger(), nullable=True),
        sa.Column("gpu", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("gpu_s", sa.Double(), nullable=False),
        sa.Column("begins_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("scope IN ('course', 'section', 'person')", name=op.f("ck_gpu_budget_scope")),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name=op.f("fk_gpu_budget_person_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gpu_budget")),
    )
    op.create_index(
        "uq_gpu_budget",
        "gpu_budget",
        ["course", "scope", "section", sa.text("coalesce(person_id, 0)"), "gpu"],
        unique=True,
    )
    op.create_table(
        "gpu_budget_use",
        sa.Column("budget_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("person_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("gpu_s", sa.Double(), nullable=False),
        sa.Column("money", sa.Double(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["budget_id"], ["gpu_budget.id"], name=op.f("fk_gpu_budget_use_budget_id")),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name=op.f("fk_gpu_budget_use_person_id")),
        sa.PrimaryKeyConstraint("budget_id", "person_id", name=op.f("pk_gpu_budget_use")),
    )
    for statement in (GPU_S, USED, COUNT, COURSE_CHANGED):
        op.execute(statement.strip())
    for name, (_, what) in TRIGGERS.items():
        op.execute(f"CREATE TRIGGER {name} {what}")
    op.execute("DROP FUNCTION kb_facts")
    op.execute(
        facts(
            out="\n    OUT budget_course text, ",
            column=",\n        (SELECT g.course FROM gpu_budget g WHERE g.course = b.course LIMIT 1)",
            name=", budget_course",
        )
    )


def downgrade() -> None:
    op.execute("DROP FUNCTION kb_facts")
    op.execute(facts())
    for name, (table, _) in TRIGGERS.items():
        op.execute(f"DROP TRIGGER {name} ON {table}")
    for name in ("kb_used", "kb_course_changed", "kb_count_budgets", "kb_gpu_s"):
        op.execute(f"DROP FUNCTION {name}")
    op.drop_table("gpu_budget_use")
    op.drop_table("gpu_budget")
    op.drop_column("attempt", "away")
