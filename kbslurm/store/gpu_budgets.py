"""Budgets in GPU-hours at home: set by hosts, and what courses, sections and people have used of them.

The database keeps the use of ended attempts by a trigger (`programs.PROGRAMS`), so that it is read without adding up
all attempts; that of open runs is the most that they may use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from kbslurm.domain.gpu_budgets import GpuBudget, Held, notices
from kbslurm.domain.run import PersonId
from kbslurm.errors import NotFound
from kbslurm.store.attempt_rows import OPEN_ATTEMPT
from kbslurm.store.connect import Connection, Pool
from kbslurm.store.programs import USE_LOCK
from kbslurm.store.rows import Rows, note_event, or_now, row_of

# Two submissions to a course that has budgets are decided on one after the other: each sees what the one before it may
# use. Whoever holds this waits for nobody else's.
LOCK_COURSE = "SELECT pg_advisory_xact_lock(hashtextextended(%(course)s, 4927315))"
# Whoever sets budgets or takes them away holds this first: no attempt that ends adds to what is no longer there.
LOCK_USE = f"SELECT pg_advisory_xact_lock({USE_LOCK})"

_BUDGETS = """
SELECT g.course, g.scope, g.gpu_s, g.section, g.person_id, p.name AS person, g.gpu, g.begins_at, g.ends_at
FROM gpu_budget g LEFT JOIN person p ON p.id = g.person_id WHERE g.course = %(course)s
ORDER BY CASE g.scope WHEN 'course' THEN 1 WHEN 'section' THEN 2 ELSE 3 END, g.section, lower(p.name) NULLS FIRST, g.gpu
"""

# Open runs are few, and the rest of each is looked up by its key: a join might read every submission there was. What
# hosts and the service have ordered counts when it is used: before that, it holds up nobody.
# Who holds each budget, and what they have used of it. With a person: only what they hold now, or hold a part of, on
# these GPU types. An own budget of a section or person that holds now takes the place of what each of them has.
HELD = f"""
WITH budget AS MATERIALIZED (
    SELECT g.*, (g.begins_at IS NULL OR g.begins_at <= %(now)s) AND (g.ends_at IS NULL OR g.ends_at > %(now)s) AS holds
    FROM gpu_budget g WHERE g.course = %(course)s
), asked AS MATERIALIZED (
    SELECT * FROM budget
    WHERE %(person)s::bigint IS NULL OR holds AND (gpu = '' OR gpu = ANY(%(gpus)s::text[]))
), open AS MATERIALIZED (
    SELECT r.person_id, r.gpu,
        r.cost_s * (SELECT v.ranks FROM problem_version v WHERE v.id = r.problem_version_id) AS gpu_s
    FROM run r
    WHERE r.state IN ('queued', 'launching', 'running') AND r.rejudging_id = 0
        AND (SELECT p.role FROM person p WHERE p.id = r.person_id) = 'participant'
        AND (SELECT b.course FROM submission s JOIN leaderboard b ON b.id = s.board_id WHERE s.id = r.submission_id)
            = %(course)s
        AND CASE WHEN r.state = 'queued' THEN true ELSE NOT coalesce((SELECT a.away FROM attempt a
            WHERE a.run_id = r.id AND a.number = r.attempts AND a.{OPEN_ATTEMPT}), false) END
), member AS MATERIALIZED (
    SELECT person_id, section, lower(section) AS key FROM roster WHERE course = %(course)s AND section IS NOT NULL
), known AS MATERIALIZED (
    SELECT %(person)s::bigint AS person_id WHERE %(person)s::bigint IS NOT NULL
    UNION SELECT r.person_id FROM roster r
    WHERE %(person)s::bigint IS NULL AND r.course = %(course)s AND r.role = 'student'
    UNION SELECT u.person_id FROM asked b JOIN gpu_budget_use u ON u.budget_id = b.id WHERE %(person)s::bigint IS NULL
    UNION SELECT o.person_id FROM open o WHERE %(person)s::bigint IS NULL
), holder AS (
    SELECT b.id, '' AS name, '' AS key, NULL::bigint AS person_id FROM asked b WHERE b.scope = 'course'
    UNION ALL
    SELECT b.id, min(m.section), m.key, NULL FROM asked b JOIN member m ON m.key = b.section OR b.section = ''
        AND NOT EXISTS (SELECT FROM budget own
            WHERE own.scope = 'section' AND own.section = m.key AND own.gpu = b.gpu AND own.holds)
    WHERE b.scope = 'section' AND (%(person)s::bigint IS NULL
        OR m.key = (SELECT me.key FROM member me WHERE me.person_id = %(person)s))
    GROUP BY b.id, m.key
    UNION ALL
    SELECT b.id, p.name, '', p.id FROM asked b JOIN person p ON p.id = b.person_id OR b.person_id IS NULL
        AND p.role = 'participant' AND p.id IN (SELECT k.person_id FROM known k)
        AND NOT EXISTS (SELECT FROM budget own
            WHERE own.scope = 'person' AND own.person_id = p.id AND own.gpu = b.gpu AND own.holds)
    WHERE b.scope = 'person' AND (%(person)s::bigint IS NULL OR p.id = %(person)s)
)
SELECT b.course, b.scope, b.gpu_s, b.section, b.person_id, own.name AS person, b.gpu, b.begins_at, b.ends_at,
    h.name, coalesce(used.gpu_s, 0) AS used_s, coalesce(used.money, 0) AS money, used.at AS used_at,
    coalesce(may.gpu_s, 0)::float8 AS open_s
FROM holder h JOIN budget b ON b.id = h.id LEFT JOIN person own ON own.id = b.person_id
LEFT JOIN LATERAL (
    SELECT sum(u.gpu_s) AS gpu_s, sum(u.money) AS money, max(u.at) AS at FROM gpu_budget_use u
    WHERE u.budget_id = b.id AND CASE b.scope WHEN 'course' THEN true WHEN 'person' THEN u.person_id = h.person_id
        ELSE u.person_id IN (SELECT m.person_id FROM member m WHERE m.key = h.key) END
) used ON true
LEFT JOIN LATERAL (
    SELECT sum(o.gpu_s) AS gpu_s FROM open o
    WHERE b.gpu IN ('', o.gpu) AND CASE b.scope WHEN 'course' THEN true
        WHEN 'person' THEN o.person_id = h.person_id
        ELSE o.person_id IN (SELECT m.person_id FROM member m WHERE m.key = h.key) END
) may ON true
ORDER BY CASE b.scope WHEN 'course' THEN 1 WHEN 'section' THEN 2 ELSE 3 END, b.gpu, lower(h.name)
"""
_BUDGET = ("course", "scope", "gpu_s", "section", "person_id", "person", "gpu", "begins_at", "ends_at")

_WHICH = """course = %(course)s AND scope = %(scope)s AND section = lower(%(section)s)
    AND coalesce(person_id, 0) = coalesce(%(person_id)s::bigint, 0) AND gpu = %(gpu)s"""
_SET = """
INSERT INTO gpu_budget (course, scope, section, person_id, gpu, gpu_s, begins_at, ends_at)
VALUES (%(course)s, %(scope)s, lower(%(section)s), %(person_id)s, %(gpu)s, %(gpu_s)s, %(begins_at)s, %(ends_at)s)
ON CONFLICT (course, scope, section, coalesce(person_id, 0), gpu) DO UPDATE SET gpu_s = excluded.gpu_s,
    begins_at = excluded.begins_at, ends_at = excluded.ends_at
RETURNING id
"""


class GpuBudgets(Rows):
    """The budgets of courses, and what is used of them."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)

    def courses(self) -> list[str]:
        """The courses that have budgets, by name."""
        return [row["course"] for row in self._all("SELECT DISTINCT course FROM gpu_budget ORDER BY course")]

    def of_course(self, course: str) -> list[GpuBudget]:
        """A course's budgets: its own, its sections', its people's."""
        return [_budget(row) for row in self._all(_BUDGETS, {"course": course})]

    def held(self, course: str, now: datetime) -> list[Held]:
        """What the course, each section and each person have used of them."""
        return [_held(row) for row in self._all(HELD, _asked(course, now))]

    def put(self, budget: GpuBudget, *, by: str, now: datetime | None = None) -> None:
        """Set a budget, or change it. What was used before counts."""
        at = or_now(now)
        with self._pool.transaction() as connection:
            row_of(connection, LOCK_USE, {})
            found = row_of(connection, _SET, _row(budget))
            assert found is not None
            count = "SELECT kb_count_budgets(%(course)s, %(budget)s)"
            row_of(connection, count, {"course": budget.course, "budget": found["id"]})
            note_event(connection, "staff.budget", f"course:{budget.course}", _said(budget, by), at)

    def clear(self, budget: GpuBudget, *, by: str, now: datetime | None = None) -> None:
        """Take a budget away; NotFound if there is none like it."""
        at, told = or_now(now), _row(budget)
        with self._pool.transaction() as connection:
            row_of(connection, LOCK_USE, {})
            found = row_of(connection, f"SELECT id FROM gpu_budget WHERE {_WHICH}", told)
            if found is None:
                known = [one.whose for one in self.of_course(budget.course)]
                raise NotFound(f"budget of course {budget.course} for", budget.whose, known=known)
            connection.execute(b"DELETE FROM gpu_budget_use WHERE budget_id = %(id)s", found)
            connection.execute(b"DELETE FROM gpu_budget WHERE id = %(id)s", found)
            said = {**_said(budget, by), "gpu_hours": None}
            note_event(connection, "staff.budget", f"course:{budget.course}", said, at)

    def attention(self, now: datetime) -> list[tuple[str, str, datetime]]:
        """Of which courses' budgets little or nothing is left: the course, in words, and since when."""
        return [
            (course, text, since) for course in self.courses() for text, since in notices(self.held(course, now), now)
        ]


def held_by(connection: Connection, course: str, person: PersonId, gpus: Sequence[str], now: datetime) -> list[Held]:
    """What this person holds now, or holds a part of, on these GPU types. Others' submissions to the course wait until
    this transaction ends."""
    row_of(connection, LOCK_COURSE, {"course": course})
    told = {**_asked(course, now), "person": person, "gpus": list(gpus)}
    return [_held(row) for row in connection.execute(HELD.encode(), told)]


def _asked(course: str, now: datetime) -> dict[str, Any]:
    return {"course": course, "now": now, "person": None, "gpus": None}


def _budget(row: Mapping[str, Any]) -> GpuBudget:
    return GpuBudget(**{name: row[name] for name in _BUDGET})


def _held(row: Mapping[str, Any]) -> Held:
    more = {name: row[name] for name in ("name", "used_s", "open_s", "money", "used_at")}
    return Held(budget=_budget(row), **more)


def _row(budget: GpuBudget) -> dict[str, Any]:
    return {name: getattr(budget, name) for name in _BUDGET}


def _said(budget: GpuBudget, by: str) -> dict[str, Any]:
    return {
        "scope": budget.scope,
        "section": budget.section or None,
        "person": budget.person_id,
        "gpu": budget.gpu or None,
        "gpu_hours": budget.gpu_s / 3_600,
        "begins": None if budget.begins_at is None else budget.begins_at.isoformat(),
        "until": None if budget.ends_at is None else budget.ends_at.isoformat(),
        "by": by,
    }
