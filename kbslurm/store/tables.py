"""The tables in SQLAlchemy: what Alembic compares and what a new schema is made from.

The store's own statements don't come from here, and this module is imported only to migrate and to test. What a table
definition can't say (functions and triggers) is created together with the tables: see `programs`.
"""

from __future__ import annotations

from typing import Any, get_args

from sqlalchemy import (
    ARRAY,
    DDL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    event,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from kbslurm.domain.access import NamesShown, StandingsShown
from kbslurm.domain.keepers import OPEN_KEEPERS, KeeperEnding, KeeperState
from kbslurm.domain.run import MOVES, OPEN_RUNS, AttemptState, Ending, RunState
from kbslurm.store.programs import PROGRAMS

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _id() -> Column[int]:
    return Column("id", BigInteger, Identity(), primary_key=True)


def _moment(name: str, *, null: bool = True) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=null)


def _words(name: str, *, null: bool = False, default: str | None = None) -> Column[str]:
    return Column(name, Text, nullable=null, server_default=None if default is None else text(f"'{default}'"))


def _integer(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=text("0"))


def _told(name: str) -> Column[Any]:
    return Column(name, JSONB, nullable=False, server_default=text("'{}'::jsonb"))


def _to(name: str, target: str, *, null: bool = False) -> Column[int]:
    return Column(name, BigInteger, ForeignKey(f"{target}.id"), nullable=null)


def _one_of(column: str, values: Any) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


def _listed(states: frozenset[RunState]) -> str:
    return ", ".join(f"'{state}'" for state in RunState if state in states)


OPEN = f"state IN ({_listed(OPEN_RUNS)})"
# Both came_from and the comparison with it may be NULL, and a CHECK lets NULL pass: hence the CASE.
MOVE = "CASE WHEN came_from IS NULL THEN state = 'queued' ELSE came_from || '>' || state IN ({}) END".format(
    ", ".join(f"'{a}>{b}'" for a in RunState for b in RunState if (a, b) in MOVES)
)

person = Table(
    "person",
    metadata,
    _id(),
    _words("name"),
    _words("role", default="participant"),
    _moment("banned_at"),
    _words("ban_reason", default=""),
    _words("discord_id", null=True),
    _words("github_id", null=True),
    _moment("created_at", null=False),
    _words("team", null=True),
    _words("cluster_account", null=True),
    _one_of("role", ("owner", "staff", "participant")),
    UniqueConstraint("discord_id"),
    UniqueConstraint("github_id"),
)
Index("uq_person_name", func.lower(person.c.name), unique=True)

token = Table(
    "token",
    metadata,
    _id(),
    Column("hash", LargeBinary, nullable=False, unique=True),
    # A pending token has no person yet: it was issued and waits to be linked.
    _to("person_id", "person", null=True),
    _words("device", default=""),
    _words("kind", default="cli"),
    _moment("created_at", null=False),
    _moment("expires_at"),
    _moment("revoked_at"),
    _moment("used_at"),
    # An invitation's is used once, for a browser's session or a device's own token.
    # Of a service token: the GPU-seconds that its submissions may use per day; NULL: no limit.
    Column("gpu_s_per_day", Double),
    _one_of("kind", ("cli", "web", "api", "pending", "invite", "service")),
    Index(None, "person_id"),
)

# What can be erased of a person, and nothing else: other tables know them by their number.
personal_data = Table(
    "personal_data",
    metadata,
    Column("person_id", BigInteger, ForeignKey("person.id"), primary_key=True, autoincrement=False),
    _words("full_name", null=True),
    _words("email", null=True),
    _words("student_id", null=True),
    # A roster's other columns, by their headings: learning platforms want theirs back with the grades.
    _told("extra"),
    _moment("changed_at", null=False),
)
Index("uq_personal_data_email", func.lower(personal_data.c.email), unique=True)
Index("uq_personal_data_student_id", func.lower(personal_data.c.student_id), unique=True)

# A course is a name that people and boards have in common.
roster = Table(
    "roster",
    metadata,
    Column("course", Text, primary_key=True),
    Column("person_id", BigInteger, ForeignKey("person.id"), primary_key=True, autoincrement=False),
    _words("section", null=True),
    _words("team", null=True),
    # On every board of the course; `board_role` is for single boards.
    _words("role", default="student"),
    _moment("added_at", null=False),
    _one_of("role", ("student", "owner", "assistant", "grader", "observer")),
    Index(None, "person_id"),
)

problem = Table("problem", metadata, _id(), _words("name"), UniqueConstraint("name"))

problem_version = Table(
    "problem_version",
    metadata,
    _id(),
    _to("problem_id", "problem"),
    _words("digest"),
    Column("content", JSONB, nullable=False),
    # Whether it has a baseline, without reading all of `content`.
    Column("paired", Boolean, nullable=False, server_default=text("false")),
    _moment("created_at", null=False),
    Column("ranks", Integer, nullable=False, server_default=text("1")),
    UniqueConstraint("problem_id", "digest"),
)

# 122 random bits.
NEW_KEY = "replace((gen_random_uuid())::text, '-'::text, ''::text)"
leaderboard = Table(
    "leaderboard",
    metadata,
    _id(),
    _words("name"),
    _words("description", default=""),
    _to("problem_id", "problem"),
    _to("problem_version_id", "problem_version"),
    _moment("deadline_at"),
    _words("zone", default="UTC"),
    _words("visibility", default="public"),
    Column("gpus", ARRAY(Text), nullable=False),
    _words("ranking", default="best"),
    _words("secret_seed"),
    _integer("min_isolation"),
    Column("confirm", Boolean, nullable=False, server_default=text("true")),
    # Its runs never go into keepers.
    Column("cold", Boolean, nullable=False, server_default=text("false")),
    _to("created_by", "person", null=True),
    _moment("created_at", null=False),
    _moment("closed_at"),
    _moment("deleted_at"),
    _words("course", null=True),
    # Its people's submissions count together with those of their team, in standings and limits.
    Column("teams", Boolean, nullable=False, server_default=text("false")),
    # After the end it goes on taking submissions, which count nowhere.
    Column("practice", Boolean, nullable=False, server_default=text("false")),
    # Whether everybody who sees the board may have the problem's reference, to judge at home.
    Column("publishes_reference", Boolean, nullable=False, server_default=text("false")),
    # Whoever is in no team can't submit.
    Column("teams_only", Boolean, nullable=False, server_default=text("false")),
    # What is accepted after the deadline, and what that costs in grades.
    _moment("late_until"),
    Column("late_grace_s", Double, nullable=False, server_default=text("0")),
    Column("late_percent", Double, nullable=False, server_default=text("0")),
    _words("late_per", default="day"),
    _integer("slip_days"),
    # From when on hardly anybody sees what was submitted.
    _moment("frozen_at"),
    # As whom others see its people, and the secret from which pseudonyms follow; and whether they see standings at all.
    _words("names", default="real"),
    Column("names_key", Text, nullable=False, server_default=text(NEW_KEY)),
    _words("standings", default="shown"),
    _one_of("visibility", ("public", "closed")),
    _one_of("ranking", ("best", "last")),
    _one_of("late_per", ("hour", "day")),
    _one_of("names", get_args(NamesShown)),
    _one_of("standings", get_args(StandingsShown)),
)
# A deleted board keeps its rows, but its name can be used again.
Index("uq_leaderboard_name", func.lower(leaderboard.c.name), unique=True, postgresql_where=text("deleted_at IS NULL"))

# Whoever helps on a board without being staff.
board_role = Table(
    "board_role",
    metadata,
    Column("board_id", BigInteger, ForeignKey("leaderboard.id"), primary_key=True, autoincrement=False),
    Column("person_id", BigInteger, ForeignKey("person.id"), primary_key=True, autoincrement=False),
    _words("role"),
    _one_of("role", ("owner", "assistant", "grader", "observer")),
    Index(None, "person_id"),
)

# When a board's code is published; without a row it isn't.
board_code = Table(
    "board_code",
    metadata,
    Column("board_id", BigInteger, ForeignKey("leaderboard.id"), primary_key=True, autoincrement=False),
    _words("rule"),
    _words("licence", default=""),
    _moment("since", null=False),
    _one_of("rule", ("never", "deadline", "consent")),
)

# Who agreed that their code on a board is published.
code_consent = Table(
    "code_consent",
    metadata,
    Column("board_id", BigInteger, ForeignKey("leaderboard.id"), primary_key=True, autoincrement=False),
    Column("person_id", BigInteger, ForeignKey("person.id"), primary_key=True, autoincrement=False),
    _moment("given_at", null=False),
    Index(None, "person_id"),
)

submission = Table(
    "submission",
    metadata,
    _id(),
    _to("person_id", "person"),
    _to("board_id", "leaderboard"),
    _words("mode"),
    _words("file_name"),
    _words("source"),
    _words("sha256"),
    _words("via"),
    Column("by_staff", Boolean, nullable=False),
    _moment("accepted_at", null=False),
    _moment("removed_at"),
    # The author's team at that time; changing teams doesn't affect it.
    _words("team", null=True),
    # Whether it came after the end, for practice; NULL: no.
    Column("practice", Boolean),
    # The only benchmark to profile; NULL: the last ones.
    Column("benchmark", Integer),
    # The service token that it came by, which is erased with its owner; NULL: a person's own.
    Column("service_token_id", BigInteger),
    # By which its sender finds it again: the same key never submits twice.
    _words("idempotency_key", null=True),
    _one_of("mode", ("test", "benchmark", "leaderboard", "profile")),
    Index("ix_submission_person", "person_id", "id"),
    Index("ix_submission_board", "board_id", "id"),
    Index(
        "ix_submission_service_token",
        "service_token_id",
        "accepted_at",
        postgresql_where=text("service_token_id IS NOT NULL"),
    ),
    Index(
        "uq_submission_key",
        "person_id",
        "idempotency_key",
        unique=True,
        postgresql_where=text("idempotency_key IS NOT NULL"),
    ),
    Index("ix_submission_team", "board_id", "team", "accepted_at", postgresql_where=text("team IS NOT NULL")),
)

run = Table(
    "run",
    metadata,
    _id(),
    _to("submission_id", "submission"),
    _to("problem_version_id", "problem_version"),
    _to("person_id", "person"),
    _words("gpu"),
    _words("state", default="queued"),
    _words("came_from", null=True),
    _integer("attempts"),
    _moment("fair_at", null=False),
    _moment("queued_at", null=False),
    Column("cost_s", Double, nullable=False),
    Column("by_staff", Boolean, nullable=False),
    _words("secret_seed"),
    _words("reason", default=""),
    _moment("cancel_at"),
    _to("cancel_by", "person", null=True),
    _moment("ended_at"),
    _one_of("state", RunState),
    CheckConstraint(MOVE, name="move"),
    CheckConstraint(f"(ended_at IS NULL) = ({OPEN})", name="ended"),
    # 0: the run that came with the submission. Others were ordered by hosts, and count once they are applied.
    Column("rejudging_id", BigInteger, nullable=False, server_default=text("0")),
    Column("counts", Boolean, nullable=False, server_default=text("true")),
    # A further measurement of a run that would improve its author's rank, which counts instead.
    Column("second", Boolean, nullable=False, server_default=text("false")),
    # False: its score isn't needed, since it is within measurement error of its author's previous one.
    Column("may_rank", Boolean, nullable=False, server_default=text("true")),
    # Waits for the service (a calibration, another second measurement) and can't be claimed meanwhile.
    Column("held", Boolean, nullable=False, server_default=text("false")),
    # The only place that it may go to.
    _words("pinned", null=True),
    # It never goes into a keeper.
    Column("cold", Boolean, nullable=False, server_default=text("false")),
    # Which measurement it is: 2 is the second, and there are more where runs broke off (domain/broken_off.py).
    Column("measurement", Integer, nullable=False, server_default=text("1")),
    # It failed, or its author cancelled it, while it was being ranked.
    Column("broke_off", Boolean, nullable=False, server_default=text("false")),
    UniqueConstraint("submission_id", "problem_version_id", "gpu", "rejudging_id", "measurement", name="uq_run_once"),
    Index("ix_run_held", "id", postgresql_where=text("held")),
    Index("ix_run_seconds", "person_id", postgresql_where=text("second AND ended_at IS NULL")),
    Index("ix_run_rejudged", "rejudging_id", postgresql_where=text("rejudging_id <> 0")),
    Index("ix_run_waiting", "gpu", "fair_at", "id", postgresql_where=text("state = 'queued' AND NOT held")),
    # For staff-only slots, so that they needn't skip everyone else's runs.
    Index(
        "ix_run_waiting_staff",
        "gpu",
        "fair_at",
        "id",
        postgresql_where=text("state = 'queued' AND NOT held AND by_staff"),
    ),
    Index("ix_run_open", "person_id", "fair_at", postgresql_where=text(OPEN)),
    Index("ix_run_failed", "ended_at", postgresql_where=text("state = 'failed'")),
    Index("ix_run_broke_off", "ended_at", postgresql_where=text("broke_off")),
)

# A job that holds a GPU, in which attempts run one after another.
OPEN_KEEPER = "state IN ({})".format(", ".join(f"'{state}'" for state in KeeperState if state in OPEN_KEEPERS))
keeper = Table(
    "keeper",
    metadata,
    _id(),
    _words("name"),
    _words("backend"),
    _words("gpu"),
    _words("state", default="intent"),
    _words("handle", null=True),
    Column("life_s", Double, nullable=False),
    Column("idle_s", Double, nullable=False),
    # Why it was started, and by which host, if one asked.
    _words("why", default=""),
    _words("asked_by", null=True),
    _moment("opened_at", null=False),
    _moment("submitted_at"),
    _moment("started_at"),
    _moment("seen_at"),
    _moment("expected_at"),
    _moment("ended_at"),
    _integer("clean_sweeps"),
    _moment("swept_at"),
    _words("node", null=True),
    # Since when and why it gets no more runs, and what its ending will be called.
    _moment("drain_at"),
    _words("drain_as", null=True),
    _words("drain_why", default=""),
    # The last look at its partition: whether other people's jobs waited.
    _moment("looked_at"),
    _words("others", default=""),
    _words("others_why", default=""),
    _words("ending", null=True),
    _words("reason", default=""),
    _one_of("state", KeeperState),
    _one_of("ending", KeeperEnding),
    _one_of("drain_as", KeeperEnding),
    _one_of("others", ("", "yes", "no", "unknown")),
    CheckConstraint(f"(ended_at IS NULL) = ({OPEN_KEEPER})", name="ended"),
    UniqueConstraint("name"),
    Index("ix_keeper_open", "id", postgresql_where=text(OPEN_KEEPER)),
    Index("ix_keeper_held", "backend", "gpu", "ended_at"),
)

OPEN_ATTEMPT = "state IN ('intent', 'ambiguous', 'submitted', 'running')"
attempt = Table(
    "attempt",
    metadata,
    _id(),
    _to("run_id", "run"),
    Column("number", Integer, nullable=False),
    _words("name"),
    _words("backend"),
    _words("gpu"),
    _words("state", default="intent"),
    _words("handle", null=True),
    Column("key", LargeBinary, nullable=False),
    _words("nonce"),
    _moment("opened_at", null=False),
    _moment("deadline_at"),
    _moment("submitted_at"),
    _moment("started_at"),
    _moment("seen_at"),
    _moment("ended_at"),
    _integer("clean_sweeps"),
    _moment("swept_at"),
    _words("node", null=True),
    _words("ending", null=True),
    Column("exit_code", Integer),
    _words("reason", default=""),
    _told("telemetry"),
    Column("gpus", Integer, nullable=False, server_default=text("1")),
    # Why it went there, the class of GPU, the price per GPU and second, and the maximum seconds.
    _words("why_here", default=""),
    _words("gpu_class", default=""),
    Column("price", Double, nullable=False, server_default=text("0")),
    Column("reserve_s", Double, nullable=False, server_default=text("0")),
    # False: its GPU isn't of its board's class, so its times don't rank.
    Column("ranks", Boolean, nullable=False, server_default=text("true")),
    _moment("withdraw_at"),
    # Whether it went to a place for overflow.
    Column("away", Boolean, nullable=False, server_default=text("false")),
    # What a warm attempt runs in: one at a time.
    _to("keeper_id", "keeper", null=True),
    _one_of("state", AttemptState),
    _one_of("ending", Ending),
    UniqueConstraint("run_id", "number"),
    UniqueConstraint("name"),
    Index("ix_attempt_open", "id", postgresql_where=text(OPEN_ATTEMPT)),
    Index(
        "uq_attempt_in_keeper",
        "keeper_id",
        unique=True,
        postgresql_where=text(f"keeper_id IS NOT NULL AND {OPEN_ATTEMPT}"),
    ),
    Index("ix_attempt_keeper", "keeper_id", postgresql_where=text("keeper_id IS NOT NULL")),
    Index("ix_attempt_refused", "run_id", "backend", postgresql_where=text("state = 'refused'")),
    Index("ix_attempt_dead", "ended_at", postgresql_where=text("state = 'dead' AND node IS NOT NULL")),
    Index("ix_attempt_paid", "opened_at", postgresql_where=text("price > 0")),
)

verdict = Table(
    "verdict",
    metadata,
    Column("run_id", BigInteger, ForeignKey("run.id"), primary_key=True, autoincrement=False),
    _to("attempt_id", "attempt"),
    _words("name"),
    _words("reason", default=""),
    Column("score_s", Double),
    Column("low_s", Double),
    Column("high_s", Double),
    Column("isolation", Integer),
    Column("ranked", Boolean, nullable=False),
    Column("detail", JSONB),
    _moment("at", null=False),
    _one_of("name", ("passed", "wrong", "error", "timeout", "memory", "violation", "infrastructure")),
    CheckConstraint("NOT ranked OR (name = 'passed' AND score_s IS NOT NULL)", name="ranked"),
    Index("ix_verdict_ranked", "run_id", postgresql_where=text("ranked")),
)

# The durations of every call, compressed; their digest is in the verdict's detail.
raw_samples = Table(
    "raw_samples",
    metadata,
    Column("attempt_id", BigInteger, ForeignKey("attempt.id"), primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)

# The baseline's times in the service's own run when a board and a problem version went live. Never changed.
calibration = Table(
    "calibration",
    metadata,
    Column("board_id", BigInteger, ForeignKey("leaderboard.id"), primary_key=True, autoincrement=False),
    Column("problem_version_id", BigInteger, ForeignKey("problem_version.id"), primary_key=True, autoincrement=False),
    Column("gpu", Text, primary_key=True),
    _to("run_id", "run"),
    Column("b_ref_s", ARRAY(Double), nullable=False),
    _moment("at", null=False),
)

# The baseline's times in every ranked run, for its node's control chart.
baseline_point = Table(
    "baseline_point",
    metadata,
    _id(),
    _to("attempt_id", "attempt"),
    _to("person_id", "person"),
    _words("backend"),
    _words("node"),
    _words("gpu"),
    _to("problem_version_id", "problem_version"),
    Column("level", Double, nullable=False),
    Column("inside", Boolean, nullable=False),
    _moment("at", null=False),
    _words("harness", default=""),
    UniqueConstraint("attempt_id"),
    Index("ix_baseline_point_chart", "backend", "node", "gpu", "problem_version_id", "id"),
)

# The leaders of a board measured head to head in one run by the service; it counts once a host applies it.
final = Table(
    "final",
    metadata,
    _id(),
    _to("board_id", "leaderboard"),
    _to("problem_version_id", "problem_version"),
    _words("gpu"),
    _to("run_id", "run"),
    _words("state", default="open"),
    _words("created_by"),
    _moment("created_at", null=False),
    _moment("decided_at"),
    _one_of("state", ("open", "applied", "forgotten")),
    UniqueConstraint("run_id"),
    Index("uq_final_open", "board_id", "gpu", unique=True, postgresql_where=text("state = 'open'")),
)

final_rival = Table(
    "final_rival",
    metadata,
    Column("final_id", BigInteger, ForeignKey("final.id"), primary_key=True, autoincrement=False),
    Column("place", Integer, primary_key=True, autoincrement=False),
    _to("run_id", "run"),
)

# A run can be measured in several finals. The latest that was applied counts, of a frozen board the latest before that.
final_score = Table(
    "final_score",
    metadata,
    Column("run_id", BigInteger, ForeignKey("run.id"), primary_key=True, autoincrement=False),
    Column("final_id", BigInteger, ForeignKey("final.id"), primary_key=True, autoincrement=False),
    Column("score_s", Double, nullable=False),
    Column("low_s", Double, nullable=False),
    Column("high_s", Double, nullable=False),
)

# A measured submission that is also measured at another place, to compare the places.
shadow = Table(
    "shadow",
    metadata,
    Column("run_id", BigInteger, ForeignKey("run.id"), primary_key=True, autoincrement=False),
    _to("of_run_id", "run"),
    _words("backend"),
    # `cold`: the run ranked from a keeper, and its shadow is a job of its own.
    _words("way", default=""),
    _words("created_by"),
    _moment("created_at", null=False),
    Index(None, "of_run_id"),
)

# A profile's files under the judge's names: the submission's own bytes, for its author and staff. Deleted after a
# while.
artifact = Table(
    "artifact",
    metadata,
    _to("attempt_id", "attempt"),
    _words("name"),
    Column("data", LargeBinary, nullable=False),
    _moment("at", null=False),
    PrimaryKeyConstraint("attempt_id", "name"),
    Index(None, "at"),
)

# A job at a place whose nodes call us. It starts only if a process claims it here, and no second one ever can.
# `sealed_order` and `result` are sealed under the place's run key. A row needs no attempt: a cancel may come first.
node_job = Table(
    "node_job",
    metadata,
    Column("name", Text, primary_key=True),
    _words("place"),
    Column("lease_s", Double, nullable=False),
    Column("sealed_order", LargeBinary),
    _moment("offered_at", null=False),
    _moment("forbidden_at"),
    _words("claimant", null=True),
    _words("node", default=""),
    _moment("claimed_at"),
    _moment("heard_at"),
    _told("progress"),
    Column("result", LargeBinary),
    CheckConstraint("(claimant IS NULL) = (claimed_at IS NULL)", name="claimed"),
    Index(None, "place", "offered_at"),
)

stale_report = Table(
    "stale_report",
    metadata,
    _id(),
    _to("attempt_id", "attempt"),
    Column("report", LargeBinary, nullable=False),
    _words("why"),
    _moment("at", null=False),
    Index(None, "attempt_id"),
)

event_ = Table(
    "event",
    metadata,
    _id(),
    _words("kind"),
    _words("subject"),
    _told("data"),
    _moment("at", null=False),
    Index("ix_event_subject", "subject", "id"),
)

cursor = Table(
    "cursor",
    metadata,
    Column("reader", Text, primary_key=True),
    Column("event_id", BigInteger, nullable=False),
)

setting = Table("setting", metadata, Column("key", Text, primary_key=True), Column("value", JSONB, nullable=False))

# Where hosts let nothing new go; an empty `gpu` means every type there.
place_drain = Table(
    "place_drain",
    metadata,
    _words("place"),
    _words("gpu"),
    _words("drained_by"),
    _words("why", default=""),
    _moment("at", null=False),
    PrimaryKeyConstraint("place", "gpu"),
)

# The newest lines of the daemon's log about each place.
place_line = Table(
    "place_line",
    metadata,
    _id(),
    _words("place"),
    _words("level"),
    _words("text"),
    _moment("at", null=False),
    Index("ix_place_line_place", "place", "id"),
)

lease = Table(
    "lease",
    metadata,
    Column("name", Text, primary_key=True),
    _words("holder"),
    _moment("elected_at", null=False),
    _moment("beat_at", null=False),
    _moment("expires_at", null=False),
    _told("info"),
)

rate_limit = Table(
    "rate_limit",
    metadata,
    Column("board_id", BigInteger, ForeignKey("leaderboard.id"), primary_key=True, autoincrement=False),
    Column("category", Text, primary_key=True),
    Column("most_per_hour", Integer, nullable=False),
    _one_of("category", ("test", "leaderboard")),
)

quota = Table(
    "quota",
    metadata,
    Column("board_id", BigInteger, ForeignKey("leaderboard.id"), primary_key=True, autoincrement=False),
    Column("gpu_s_per_day", Double, nullable=False),
)

# GPU-hours at home: of a course, of a section (in lower case) or a person, or with neither of each of them.
gpu_budget = Table(
    "gpu_budget",
    metadata,
    _id(),
    _words("course"),
    _words("scope"),
    _words("section", default=""),
    _to("person_id", "person", null=True),
    _words("gpu", default=""),
    Column("gpu_s", Double, nullable=False),
    _moment("begins_at"),
    _moment("ends_at"),
    _one_of("scope", ("course", "section", "person")),
)
Index(
    "uq_gpu_budget",
    gpu_budget.c.course,
    gpu_budget.c.scope,
    gpu_budget.c.section,
    func.coalesce(gpu_budget.c.person_id, 0),
    gpu_budget.c.gpu,
    unique=True,
)

# What each person's attempts used of a budget; a trigger keeps it, so that nobody has to add up all attempts.
gpu_budget_use = Table(
    "gpu_budget_use",
    metadata,
    Column("budget_id", BigInteger, ForeignKey("gpu_budget.id"), primary_key=True, autoincrement=False),
    Column("person_id", BigInteger, ForeignKey("person.id"), primary_key=True, autoincrement=False),
    Column("gpu_s", Double, nullable=False),
    Column("money", Double, nullable=False),
    _moment("at", null=False),
)

extension = Table(
    "extension",
    metadata,
    Column("board_id", BigInteger, ForeignKey("leaderboard.id"), primary_key=True, autoincrement=False),
    Column("person_id", BigInteger, ForeignKey("person.id"), primary_key=True, autoincrement=False),
    _moment("deadline_at", null=False),
)

# As whom somebody chose to be seen on a board; no two there look alike.
nickname = Table(
    "nickname",
    metadata,
    Column("board_id", BigInteger, ForeignKey("leaderboard.id"), primary_key=True, autoincrement=False),
    Column("person_id", BigInteger, ForeignKey("person.id"), primary_key=True, autoincrement=False),
    _words("name"),
    _words("outline"),
    UniqueConstraint("board_id", "outline"),
)

# The same for everybody in a section of the board's course, by its name in lower case.
section_extension = Table(
    "section_extension",
    metadata,
    Column("board_id", BigInteger, ForeignKey("leaderboard.id"), primary_key=True, autoincrement=False),
    Column("section", Text, primary_key=True),
    _moment("deadline_at", null=False),
)

# A board's standings, fixed by a host. The newest one that wasn't withdrawn is what the board shows; none is changed.
finalisation = Table(
    "finalisation",
    metadata,
    _id(),
    _to("board_id", "leaderboard"),
    _words("decided_by"),
    _words("note", default=""),
    _moment("at", null=False),
    _moment("withdrawn_at"),
    Index("ix_finalisation_board", "board_id", "id"),
)

fixed_place = Table(
    "fixed_place",
    metadata,
    Column("finalisation_id", BigInteger, ForeignKey("finalisation.id"), primary_key=True, autoincrement=False),
    Column("run_id", BigInteger, ForeignKey("run.id"), primary_key=True, autoincrement=False),
    Column("score_s", Double, nullable=False),
    Column("low_s", Double, nullable=False),
    Column("high_s", Double, nullable=False),
)

# The archives of a board that were written, and where: they hold what deleting a person can't reach.
archive = Table(
    "archive",
    metadata,
    _id(),
    _to("board_id", "leaderboard"),
    Column("private", Boolean, nullable=False),
    _words("place"),
    _words("written_by"),
    _moment("at", null=False),
    Index(None, "board_id"),
)

rejudging = Table(
    "rejudging",
    metadata,
    _id(),
    _to("board_id", "leaderboard"),
    _to("problem_version_id", "problem_version"),
    _words("state", default="open"),
    _told("wanted"),
    _words("created_by"),
    _moment("created_at", null=False),
    _moment("decided_at"),
    _one_of("state", ("open", "applied", "cancelled")),
    Index("uq_rejudging_open", "board_id", unique=True, postgresql_where=text("state = 'open'")),
)

# A person's, at a board or one of their submissions. An answer to all is shown to whoever sees the board.
question = Table(
    "question",
    metadata,
    _id(),
    _to("board_id", "leaderboard"),
    _to("person_id", "person"),
    _to("submission_id", "submission", null=True),
    # It asks for the submission to be judged again.
    Column("appeal", Boolean, nullable=False),
    _words("text"),
    _moment("asked_at", null=False),
    _words("state", default="open"),
    _words("answer", default=""),
    Column("to_all", Boolean, nullable=False, server_default=text("false")),
    _words("answered_by", null=True),
    _moment("answered_at"),
    # The rejudge that decides on an appeal, and once it is applied what it changed.
    _to("rejudging_id", "rejudging", null=True),
    Column("outcome", JSONB),
    _one_of("state", ("open", "answered", "closed")),
    CheckConstraint("NOT appeal OR submission_id IS NOT NULL", name="appeal"),
    Index("ix_question_board", "board_id", "id"),
    Index("ix_question_person", "person_id", "asked_at"),
    Index("uq_question_appeal", "submission_id", unique=True, postgresql_where=text("appeal AND state = 'open'")),
)

# Identities at a university's provider: a subject is only unique within its issuer, and never changes.
oidc_account = Table(
    "oidc_account",
    metadata,
    Column("issuer", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    _to("person_id", "person"),
    Index(None, "person_id"),
)

# Used sign-in states, kept until they would have expired anyway.
used_state = Table(
    "used_state",
    metadata,
    Column("hash", LargeBinary, primary_key=True),
    _moment("expires_at", null=False),
)

# Codes aren't secret from hosts, who list, hand out and revoke them.
invite = Table(
    "invite",
    metadata,
    _id(),
    _words("code"),
    Column("newcomers", Boolean, nullable=False, server_default=text("false")),
    _to("person_id", "person", null=True),
    _moment("created_at", null=False),
    _moment("claimed_at"),
    _moment("revoked_at"),
    UniqueConstraint("code"),
    Index(None, "person_id"),
)

invite_board = Table(
    "invite_board",
    metadata,
    Column("invite_id", BigInteger, ForeignKey("invite.id"), primary_key=True, autoincrement=False),
    Column("board_id", BigInteger, ForeignKey("leaderboard.id"), primary_key=True, autoincrement=False),
    Index(None, "board_id"),
)

# Or by a trigger of its own.
NOT_KEPT = ("id", "source", "removed_at", "benchmark", "practice", "service_token_id", "idempotency_key")
WHAT_WAS_DONE = [name for name in submission.c.keys() if name not in NOT_KEPT]  # noqa: SIM118 - no dict

TRIGGERS: dict[str, tuple[str, str]] = {
    "event_announced": (
        "event",
        "BEFORE INSERT ON event FOR EACH STATEMENT EXECUTE FUNCTION kb_event_announced()",
    ),
    # For each row: a statement trigger also fires without rows, and a futile claim would wake the next claimant.
    "event_news": ("event", "AFTER INSERT ON event FOR EACH ROW EXECUTE FUNCTION kb_news()"),
    # But for what a line says, while somebody is erased from it.
    "event_kept": (
        "event",
        (
            "BEFORE UPDATE ON event FOR EACH ROW WHEN (current_setting('kbslurm.erasing', true) IS DISTINCT FROM 'on'"
            " OR NEW.id IS DISTINCT FROM OLD.id OR NEW.kind IS DISTINCT FROM OLD.kind"
            " OR NEW.subject IS DISTINCT FROM OLD.subject OR NEW.at IS DISTINCT FROM OLD.at)"
            " EXECUTE FUNCTION kb_kept()"
        ),
    ),
    # The audit log is append-only.
    "event_audit_kept": (
        "event",
        "BEFORE DELETE ON event FOR EACH ROW WHEN (OLD.kind LIKE 'staff.%') EXECUTE FUNCTION kb_kept()",
    ),
    "event_never_emptied": ("event", "BEFORE TRUNCATE ON event FOR EACH STATEMENT EXECUTE FUNCTION kb_kept()"),
    "calibration_kept": ("calibration", "BEFORE UPDATE ON calibration FOR EACH ROW EXECUTE FUNCTION kb_kept()"),
    "verdict_kept": ("verdict", "BEFORE UPDATE ON verdict FOR EACH ROW EXECUTE FUNCTION kb_kept()"),
    "submission_kept": (
        "submission",
        f"BEFORE UPDATE OF {', '.join(WHAT_WAS_DONE)} ON submission FOR EACH ROW EXECUTE FUNCTION kb_kept()",
    ),
    "submission_team": ("submission", "BEFORE INSERT ON submission FOR EACH ROW EXECUTE FUNCTION kb_team()"),
    # It is set once, in the transaction that accepts the submission.
    "submission_benchmark_kept": (
        "submission",
        (
            "BEFORE UPDATE OF benchmark ON submission FOR EACH ROW"
            " WHEN (OLD.benchmark IS NOT NULL) EXECUTE FUNCTION kb_kept()"
        ),
    ),
    "submission_key_kept": (
        "submission",
        (
            "BEFORE UPDATE OF idempotency_key ON submission FOR EACH ROW"
            " WHEN (OLD.idempotency_key IS NOT NULL) EXECUTE FUNCTION kb_kept()"
        ),
    ),
    "submission_service_kept": (
        "submission",
        (
            "BEFORE UPDATE OF service_token_id ON submission FOR EACH ROW"
            " WHEN (OLD.service_token_id IS NOT NULL) EXECUTE FUNCTION kb_kept()"
        ),
    ),
    "submission_practice_kept": (
        "submission",
        (
            "BEFORE UPDATE OF practice ON submission FOR EACH ROW"
            " WHEN (OLD.practice IS NOT NULL) EXECUTE FUNCTION kb_kept()"
        ),
    ),
    # The source of a deleted submission may be purged; otherwise a source never changes.
    "submission_source_kept": (
        "submission",
        (
            "BEFORE UPDATE OF source ON submission FOR EACH ROW"
            " WHEN (NEW.source <> '' OR NEW.removed_at IS NULL) EXECUTE FUNCTION kb_kept()"
        ),
    ),
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
    "run_moved": (
        "run",
        "BEFORE UPDATE ON run FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION kb_moved()",
    ),
}

# The few rows at the queue's head are short-lived: vacuum early, and leave room for in-place updates.
STORAGE: dict[str, str] = {
    "run": "fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0",
    "attempt": "fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02",
}


def programs() -> list[str]:
    """The statements that complete the tables, in order."""
    found = [body.strip() for body in PROGRAMS.values()]
    found += [f"CREATE TRIGGER {name} {what}" for name, (_, what) in TRIGGERS.items()]
    found += [f"ALTER TABLE {name} SET ({what})" for name, what in STORAGE.items()]
    return found


for _statement in programs():
    # DDL() would read a percent sign as the start of a placeholder.
    _completing: Any = DDL(_statement.replace("%", "%%"))  # type: ignore[no-untyped-call]
    event.listen(metadata, "after_create", _completing)
