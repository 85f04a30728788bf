"""The rows"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


PROGRAMS = (
    """
CREATE FUNCTION kb_event_announced() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE given bigint;
BEGIN
    SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END INTO given FROM event_id_seq;
    PERFORM pg_advisory_xact_lock_shared((4927305::bigint << 40) | given);
    RETURN NULL;
END $$
    """,
    """
CREATE FUNCTION kb_settled_event() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    given bigint;
    pending bigint;
BEGIN
    SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END INTO given FROM event_id_seq;
    SELECT min(((classid::bigint << 32) | objid::bigint) & ((1::bigint << 40) - 1)) INTO pending
    FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND ((classid::bigint << 32) | objid::bigint) >> 40 = 4927305;
    RETURN least(given, coalesce(pending, given));
END $$
    """,
    """
CREATE FUNCTION kb_news() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NOTIFY kbslurm_news;
    RETURN NULL;
END $$
    """,
    """
CREATE FUNCTION kb_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.came_from := OLD.state;
    RETURN NEW;
END $$
    """,
    """
CREATE FUNCTION kb_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a row of % is never changed', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$
    """,
    ("CREATE TRIGGER event_announced BEFORE INSERT ON event FOR EACH STATEMENT EXECUTE FUNCTION kb_event_announced()"),
    ("CREATE TRIGGER event_news AFTER INSERT ON event FOR EACH STATEMENT EXECUTE FUNCTION kb_news()"),
    ("CREATE TRIGGER event_kept BEFORE UPDATE ON event FOR EACH ROW EXECUTE FUNCTION kb_kept()"),
    ("CREATE TRIGGER verdict_kept BEFORE UPDATE ON verdict FOR EACH ROW EXECUTE FUNCTION kb_kept()"),
    (
        "CREATE TRIGGER submission_kept BEFORE UPDATE OF person_id, board_id, mode, "
        "file_name, source, sha256, via, by_staff, accepted_at ON submission FOR EACH ROW "
        "EXECUTE FUNCTION kb_kept()"
    ),
    (
        "CREATE TRIGGER run_moved BEFORE UPDATE ON run FOR EACH ROW WHEN (OLD.state IS "
        "DISTINCT FROM NEW.state) EXECUTE FUNCTION kb_moved()"
    ),
)


def upgrade() -> None:
    op.create_table(
        "cursor",
        sa.Column("reader", sa.Text(), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("reader", name=op.f("pk_cursor")),
    )
    op.create_table(
        "event",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column(
            "data", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
    )
    op.create_index("ix_event_subject", "event", ["subject", "id"], unique=False)
    op.create_table(
        "lease",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("elected_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("beat_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "info", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_lease")),
    )
    op.create_table(
        "person",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), server_default=sa.text("'participant'"), nullable=False),
        sa.Column("banned_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ban_reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("discord_id", sa.Text(), nullable=True),
        sa.Column("github_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("role IN ('owner', 'staff', 'participant')", name=op.f("ck_person_role")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_person")),
        sa.UniqueConstraint("discord_id", name=op.f("uq_person_discord_id")),
        sa.UniqueConstraint("github_id", name=op.f("uq_person_github_id")),
    )
    op.create_index("uq_person_name", "person", [sa.literal_column("lower(name)")], unique=True)
    op.create_table(
        "problem",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_problem")),
        sa.UniqueConstraint("name", name=op.f("uq_problem_name")),
    )
    op.create_table(
        "setting",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_setting")),
    )
    op.create_table(
        "problem_version",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("problem_id", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("content", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name=op.f("fk_problem_version_problem_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_problem_version")),
        sa.UniqueConstraint("problem_id", "digest", name=op.f("uq_problem_version_problem_id_digest")),
    )
    op.create_table(
        "token",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("person_id", sa.BigInteger(), nullable=True),
        sa.Column("device", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("kind", sa.Text(), server_default=sa.text("'cli'"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('cli', 'web', 'api', 'pending')", name=op.f("ck_token_kind")),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name=op.f("fk_token_person_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_token")),
        sa.UniqueConstraint("hash", name=op.f("uq_token_hash")),
    )
    op.create_index(op.f("ix_token_person_id"), "token", ["person_id"], unique=False)
    op.create_table(
        "leaderboard",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("problem_id", sa.BigInteger(), nullable=False),
        sa.Column("problem_version_id", sa.BigInteger(), nullable=False),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("zone", sa.Text(), server_default=sa.text("'UTC'"), nullable=False),
        sa.Column("visibility", sa.Text(), server_default=sa.text("'public'"), nullable=False),
        sa.Column("gpus", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("ranking", sa.Text(), server_default=sa.text("'best'"), nullable=False),
        sa.Column("secret_seed", sa.Text(), nullable=False),
        sa.Column("min_isolation", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_by", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("ranking IN ('best', 'last')", name=op.f("ck_leaderboard_ranking")),
        sa.CheckConstraint("visibility IN ('public', 'closed')", name=op.f("ck_leaderboard_visibility")),
        sa.ForeignKeyConstraint(["created_by"], ["person.id"], name=op.f("fk_leaderboard_created_by")),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name=op.f("fk_leaderboard_problem_id")),
        sa.ForeignKeyConstraint(
            ["problem_version_id"], ["problem_version.id"], name=op.f("fk_leaderboard_problem_version_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leaderboard")),
    )
    op.create_index(
        "uq_leaderboard_name",
        "leaderboard",
        [sa.literal_column("lower(name)")],
        unique=True,
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_table(
        "submission",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("person_id", sa.BigInteger(), nullable=False),
        sa.Column("board_id", sa.BigInteger(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("file_name", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("via", sa.Text(), nullable=False),
        sa.Column("by_staff", sa.Boolean(), nullable=False),
        sa.Column("accepted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("mode IN ('test', 'benchmark', 'leaderboard', 'profile')", name=op.f("ck_submission_mode")),
        sa.ForeignKeyConstraint(["board_id"], ["leaderboard.id"], name=op.f("fk_submission_board_id")),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name=op.f("fk_submission_person_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_submission")),
    )
    op.create_index("ix_submission_board", "submission", ["board_id", "id"], unique=False)
    op.create_index("ix_submission_person", "submission", ["person_id", "id"], unique=False)
    op.create_table(
        "run",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("submission_id", sa.BigInteger(), nullable=False),
        sa.Column("problem_version_id", sa.BigInteger(), nullable=False),
        sa.Column("person_id", sa.BigInteger(), nullable=False),
        sa.Column("gpu", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'queued'"), nullable=False),
        sa.Column("came_from", sa.Text(), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("fair_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("queued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cost_s", sa.Double(), nullable=False),
        sa.Column("by_staff", sa.Boolean(), nullable=False),
        sa.Column("secret_seed", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("cancel_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_by", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(ended_at IS NULL) = (state IN ('queued', 'launching', 'running'))", name=op.f("ck_run_ended")
        ),
        sa.CheckConstraint(
            (
                "CASE WHEN came_from IS NULL THEN state = 'queued' ELSE came_from || '>' || state IN "
                "('queued>launching', 'queued>cancelled', 'launching>queued', 'launching>running', "
                "'launching>scored', 'launching>failed', 'launching>cancelled', 'running>queued', "
                "'running>scored', 'running>failed', 'running>cancelled') END"
            ),
            name=op.f("ck_run_move"),
        ),
        sa.CheckConstraint(
            "state IN ('queued', 'launching', 'running', 'scored', 'failed', 'cancelled')", name=op.f("ck_run_state")
        ),
        sa.ForeignKeyConstraint(["cancel_by"], ["person.id"], name=op.f("fk_run_cancel_by")),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name=op.f("fk_run_person_id")),
        sa.ForeignKeyConstraint(["problem_version_id"], ["problem_version.id"], name=op.f("fk_run_problem_version_id")),
        sa.ForeignKeyConstraint(["submission_id"], ["submission.id"], name=op.f("fk_run_submission_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
        sa.UniqueConstraint(
            "submission_id", "problem_version_id", "gpu", name=op.f("uq_run_submission_id_problem_version_id_gpu")
        ),
    )
    op.create_index("ix_run_failed", "run", ["ended_at"], unique=False, postgresql_where=sa.text("state = 'failed'"))
    op.create_index(
        "ix_run_open",
        "run",
        ["person_id", "fair_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('queued', 'launching', 'running')"),
    )
    op.create_index(
        "ix_run_waiting", "run", ["gpu", "fair_at", "id"], unique=False, postgresql_where=sa.text("state = 'queued'")
    )
    op.create_index(
        "ix_run_waiting_staff",
        "run",
        ["gpu", "fair_at", "id"],
        unique=False,
        postgresql_where=sa.text("state = 'queued' AND by_staff"),
    )
    op.create_table(
        "attempt",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("gpu", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'intent'"), nullable=False),
        sa.Column("handle", sa.Text(), nullable=True),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("nonce", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("clean_sweeps", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("swept_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("node", sa.Text(), nullable=True),
        sa.Column("ending", sa.Text(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column(
            "telemetry", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.CheckConstraint(
            (
                "ending IN ('reported', 'timeout', 'memory', 'node_failure', 'preempted', "
                "'boot_failure', 'image', 'no_report', 'bad_report', 'cancelled', 'refused', "
                "'vanished')"
            ),
            name=op.f("ck_attempt_ending"),
        ),
        sa.CheckConstraint(
            ("state IN ('intent', 'ambiguous', 'submitted', 'running', 'reported', 'dead', 'refused', 'cancelled')"),
            name=op.f("ck_attempt_state"),
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_attempt_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempt")),
        sa.UniqueConstraint("name", name=op.f("uq_attempt_name")),
        sa.UniqueConstraint("run_id", "number", name=op.f("uq_attempt_run_id_number")),
    )
    op.create_index(
        "ix_attempt_dead",
        "attempt",
        ["ended_at"],
        unique=False,
        postgresql_where=sa.text("state = 'dead' AND node IS NOT NULL"),
    )
    op.create_index(
        "ix_attempt_open",
        "attempt",
        ["id"],
        unique=False,
        postgresql_where=sa.text("state IN ('intent', 'ambiguous', 'submitted', 'running')"),
    )
    op.create_table(
        "stale_report",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("attempt_id", sa.BigInteger(), nullable=False),
        sa.Column("report", sa.LargeBinary(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_stale_report_attempt_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_stale_report")),
    )
    op.create_index(op.f("ix_stale_report_attempt_id"), "stale_report", ["attempt_id"], unique=False)
    op.create_table(
        "verdict",
        sa.Column("run_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("score_s", sa.Double(), nullable=True),
        sa.Column("low_s", sa.Double(), nullable=True),
        sa.Column("high_s", sa.Double(), nullable=True),
        sa.Column("isolation", sa.Integer(), nullable=True),
        sa.Column("ranked", sa.Boolean(), nullable=False),
        sa.Column("detail", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("NOT ranked OR (name = 'passed' AND score_s IS NOT NULL)", name=op.f("ck_verdict_ranked")),
        sa.CheckConstraint(
            ("name IN ('passed', 'wrong', 'error', 'timeout', 'memory', 'violation', 'infrastructure')"),
            name=op.f("ck_verdict_name"),
        ),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_verdict_attempt_id")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_verdict_run_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_verdict")),
    )
    op.create_index("ix_verdict_ranked", "verdict", ["run_id"], unique=False, postgresql_where=sa.text("ranked"))
    for statement in PROGRAMS:
        op.execute(statement.strip())


def downgrade() -> None:
    op.drop_index("ix_verdict_ranked", table_name="verdict", postgresql_where=sa.text("ranked"))
    op.drop_table("verdict")
    op.drop_index(op.f("ix_stale_report_attempt_id"), table_name="stale_report")
    op.drop_table("stale_report")
    op.drop_index(
        "ix_attempt_open",
        table_name="attempt",
        postgresql_where=sa.text("state IN ('intent', 'ambiguous', 'submitted', 'running')"),
    )
    op.drop_index(
        "ix_attempt_dead", table_name="attempt", postgresql_where=sa.text("state = 'dead' AND node IS NOT NULL")
    )
    op.drop_table("attempt")
    op.drop_index("ix_run_waiting_staff", table_name="run", postgresql_where=sa.text("state = 'queued' AND by_staff"))
    op.drop_index("ix_run_waiting", table_name="run", postgresql_where=sa.text("state = 'queued'"))
    op.drop_index(
        "ix_run_open", table_name="run", postgresql_where=sa.text("state IN ('queued', 'launching', 'running')")
    )
    op.drop_index("ix_run_failed", table_name="run", postgresql_where=sa.text("state = 'failed'"))
    op.drop_table("run")
    op.drop_index("ix_submission_person", table_name="submission")
    op.drop_index("ix_submission_board", table_name="submission")
    op.drop_table("submission")
    op.drop_index("uq_leaderboard_name", table_name="leaderboard", postgresql_where=sa.text("deleted_at IS NULL"))
    op.drop_table("leaderboard")
    op.drop_index(op.f("ix_token_person_id"), table_name="token")
    op.drop_table("token")
    op.drop_table("problem_version")
    op.drop_table("setting")
    op.drop_table("problem")
    op.drop_index("uq_person_name", table_name="person")
    op.drop_table("person")
    op.drop_table("lease")
    op.drop_index("ix_event_subject", table_name="event")
    op.drop_table("event")
    op.drop_table("cursor")
    op.execute("DROP FUNCTION kb_event_announced(), kb_settled_event(), kb_news(), kb_moved(), kb_kept()")
