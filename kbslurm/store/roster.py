"""Courses: who is on whose roster, in which section and team, and the personal data that came with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from kbslurm.domain import access, roster
from kbslurm.domain.access import BoardRole
from kbslurm.domain.roster import CourseRole, Known, Plan, Row
from kbslurm.domain.run import PersonId
from kbslurm.errors import BackendTrouble, NotFound
from kbslurm.store.connect import Connection, Pool
from kbslurm.store.people import NAME_CAP, NEWCOMER_LOCK, is_like_a_number, seen_name
from kbslurm.store.rows import Rows, note_event, or_now

_ENROLLED = """
SELECT r.course, r.person_id, p.name, p.role AS site_role, p.banned_at IS NOT NULL AS banned, d.full_name, d.email,
    d.student_id, coalesce(d.extra, '{}') AS extra, r.section, r.team, r.role, r.added_at,
    EXISTS (SELECT 1 FROM token t WHERE t.person_id = p.id AND t.kind <> 'invite' AND t.used_at IS NOT NULL)
        OR EXISTS (SELECT 1 FROM oidc_account o WHERE o.person_id = p.id)
        OR p.discord_id IS NOT NULL OR p.github_id IS NOT NULL AS has_signed_in,
    (SELECT max(t.expires_at) FROM token t WHERE t.person_id = p.id AND t.kind = 'invite' AND t.revoked_at IS NULL)
        AS invited_until
FROM roster r JOIN person p ON p.id = r.person_id LEFT JOIN personal_data d ON d.person_id = p.id
"""
_ORDER = " ORDER BY lower(coalesce(r.section, '')), lower(coalesce(d.full_name, p.name)), p.id"

# Whoever a file may mean: those on the roster, and those who have its addresses, numbers, accounts or names.
_KNOWN = """
SELECT p.id AS person_id, p.name, d.full_name, d.email, d.student_id, coalesce(d.extra, '{}') AS extra,
    (SELECT o.subject FROM oidc_account o WHERE o.person_id = p.id AND o.issuer IN (%(issuer)s, %(issuer)s || '/')
        LIMIT 1) AS subject,
    r.section, r.team, r.role
FROM person p LEFT JOIN personal_data d ON d.person_id = p.id
LEFT JOIN roster r ON r.person_id = p.id AND r.course = %(course)s
WHERE r.course IS NOT NULL OR lower(d.email) = ANY(%(emails)s) OR lower(d.student_id) = ANY(%(ids)s)
    OR lower(p.name) = ANY(%(names)s) OR p.id = ANY(%(numbers)s)
    OR p.id IN (SELECT o.person_id FROM oidc_account o
        WHERE o.issuer IN (%(issuer)s, %(issuer)s || '/') AND o.subject = ANY(%(subjects)s))
ORDER BY p.id
"""
_KEEP = """
INSERT INTO personal_data AS d (person_id, full_name, email, student_id, extra, changed_at)
VALUES (%(person)s, %(name)s, %(email)s, %(student_id)s, %(extra)s, %(now)s)
ON CONFLICT (person_id) DO UPDATE SET full_name = excluded.full_name, email = coalesce(excluded.email, d.email),
    student_id = coalesce(excluded.student_id, d.student_id), extra = d.extra || excluded.extra,
    changed_at = excluded.changed_at
"""
_ENROL = """
INSERT INTO roster AS r (course, person_id, section, team, role, added_at)
VALUES (%(course)s, %(person)s, %(section)s, %(team)s, coalesce(%(role)s, 'student'), %(now)s)
ON CONFLICT (course, person_id) DO UPDATE SET
    section = CASE WHEN %(has_section)s THEN excluded.section ELSE r.section END,
    team = CASE WHEN %(has_team)s THEN excluded.team ELSE r.team END,
    role = coalesce(%(role)s, r.role)
"""
_COURSES = """
SELECT c.course AS name, ARRAY(SELECT b.name FROM leaderboard b WHERE b.course = c.course AND b.deleted_at IS NULL
        ORDER BY b.name) AS boards,
    (SELECT count(*) FROM roster r WHERE r.course = c.course AND r.role = 'student') AS students,
    (SELECT count(*) FROM roster r WHERE r.course = c.course AND r.role <> 'student') AS helpers
FROM (SELECT course FROM roster
    UNION SELECT course FROM leaderboard WHERE course IS NOT NULL AND deleted_at IS NULL) c ORDER BY c.course
"""
_LINK = """
INSERT INTO oidc_account (issuer, subject, person_id) VALUES (%(issuer)s, %(subject)s, %(person)s)
ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, kw_only=True)
class Enrolled:
    """Somebody on a course's roster. `full_name`, `email`, `student_id` and `extra` are personal data."""

    course: str
    person_id: PersonId
    name: str
    site_role: str
    banned: bool
    full_name: str | None
    email: str | None
    student_id: str | None
    section: str | None
    team: str | None
    role: CourseRole
    added_at: datetime
    has_signed_in: bool
    invited_until: datetime | None
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Course:
    """A course: how many are on its roster, and its boards."""

    name: str
    students: int
    helpers: int
    boards: tuple[str, ...]


class Roster(Rows):
    """The courses' rosters."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)

    def courses(self) -> list[Course]:
        """Every course that has people or boards, by name."""
        return [Course(**{**row, "boards": tuple(row["boards"])}) for row in self._all(_COURSES)]

    def of_course(self, course: str, *, everyone: bool = False) -> list[Enrolled]:
        """Those on the roster by section and name: students, or everyone, whoever helps too."""
        found = self._all(
            f"{_ENROLLED} WHERE r.course = %(course)s AND (%(everyone)s OR r.role = 'student'){_ORDER}",
            {"course": course, "everyone": everyone},
        )
        return [Enrolled(**row) for row in found]

    def of_board(self, board: str, *, everyone: bool = False) -> list[Enrolled]:
        """The roster of the board's course; empty if it has none."""
        found = self._all(
            f"{_ENROLLED} JOIN leaderboard b ON b.course = r.course AND b.deleted_at IS NULL"
            f" WHERE lower(b.name) = lower(%(board)s) AND (%(everyone)s OR r.role = 'student'){_ORDER}",
            {"board": board.strip(), "everyone": everyone},
        )
        return [Enrolled(**row) for row in found]

    def find(self, course: str, person: PersonId) -> Enrolled | None:
        """This person on that course's roster."""
        found = self._one(
            f"{_ENROLLED} WHERE r.course = %(course)s AND r.person_id = %(person)s",
            {"course": course, "person": person},
        )
        return None if found is None else Enrolled(**found)

    def by_personal(self, course: str, text: str) -> PersonId | None:
        """Whoever on that roster has this e-mail address or student ID; None also if it means two people."""
        found = self._all(
            "SELECT r.person_id FROM roster r JOIN personal_data d ON d.person_id = r.person_id"
            " WHERE r.course = %(course)s"
            " AND (lower(d.email) = lower(%(text)s) OR lower(d.student_id) = lower(%(text)s))",
            {"course": course, "text": text},
        )
        return PersonId(found[0]["person_id"]) if len(found) == 1 else None

    def takes_part(self, person: PersonId, *, courses: Sequence[str], boards: Sequence[int]) -> bool:
        """Whether they have anything to do with one of these courses or boards: on a roster, invited, with a role, or
        by a submission."""
        found = self._one(
            "SELECT EXISTS (SELECT 1 FROM roster WHERE person_id = %(person)s AND course = ANY(%(courses)s))"
            " OR EXISTS (SELECT 1 FROM board_role WHERE person_id = %(person)s AND board_id = ANY(%(boards)s))"
            " OR EXISTS (SELECT 1 FROM invite i JOIN invite_board b ON b.invite_id = i.id"
            " WHERE i.person_id = %(person)s AND i.revoked_at IS NULL AND b.board_id = ANY(%(boards)s))"
            " OR EXISTS (SELECT 1 FROM submission WHERE person_id = %(person)s AND board_id = ANY(%(boards)s))"
            " AS found",
            {"person": person, "courses": list(courses), "boards": list(boards)},
        )
        return found is not None and bool(found["found"])

    def get(self, course: str, person: PersonId) -> Enrolled:
        """As `find`, or NotFound."""
        found = self.find(course, person)
        if found is None:
            raise NotFound(f"person on the roster of {course}", str(person))
        return found

    def section_of(self, board: int, person: PersonId) -> str | None:
        """The section in which this person is in the course of that board."""
        found = self._one(
            "SELECT r.section FROM roster r JOIN leaderboard b ON b.course = r.course"
            " WHERE b.id = %(board)s AND r.person_id = %(person)s",
            {"board": board, "person": person},
        )
        return None if found is None else found["section"]

    def team_of(self, board: int, person: PersonId) -> str | None:
        """The team for which this person submits on that board."""
        found = self._one("SELECT kb_team_of(%(person)s, %(board)s) AS team", {"person": person, "board": board})
        return None if found is None else found["team"]

    def role_on(self, board: int, person: PersonId) -> BoardRole | None:
        """What they may on this board beyond submitting: by a role there, or on its course."""
        found = self._all(
            "SELECT role FROM board_role WHERE board_id = %(board)s AND person_id = %(person)s"
            " UNION SELECT r.role FROM roster r JOIN leaderboard b ON b.course = r.course"
            " WHERE b.id = %(board)s AND r.person_id = %(person)s AND r.role <> 'student'",
            {"board": board, "person": person},
        )
        return access.strongest(row["role"] for row in found)

    def roles_of(self, person: PersonId) -> dict[int, BoardRole]:
        """The same for every board on which they may anything beyond submitting."""
        found = self._all(
            "SELECT board_id, array_agg(role) AS roles FROM (SELECT board_id, role FROM board_role"
            " WHERE person_id = %(person)s UNION SELECT b.id, r.role FROM roster r JOIN leaderboard b"
            " ON b.course = r.course WHERE r.person_id = %(person)s AND r.role <> 'student') h GROUP BY board_id",
            {"person": person},
        )
        strongest = {row["board_id"]: access.strongest(row["roles"]) for row in found}
        return {board: role for board, role in strongest.items() if role is not None}

    def role_in(self, course: str, person: PersonId) -> BoardRole | None:
        """What they may on all of this course's boards, beyond submitting."""
        found = self._one(
            "SELECT role FROM roster WHERE course = %(course)s AND person_id = %(person)s AND role <> 'student'",
            {"course": course, "person": person},
        )
        return None if found is None else found["role"]

    def helps(self, person: PersonId) -> bool:
        """Whether they have a role on any board or course."""
        return person in self.helpers_among({person})

    def helpers_among(self, people: Collection[PersonId]) -> frozenset[PersonId]:
        """Those of these people who have a role on any board or course."""
        if not people:
            return frozenset()
        rows = self._all(
            "SELECT person_id FROM board_role WHERE person_id = ANY(%(people)s)"
            " UNION SELECT person_id FROM roster WHERE person_id = ANY(%(people)s) AND role <> 'student'",
            {"people": list(people)},
        )
        return frozenset(PersonId(row["person_id"]) for row in rows)

    def roles(self, board: int) -> list[tuple[PersonId, str, BoardRole]]:
        """Who has a role on this board itself: person, name, role."""
        found = self._all(
            "SELECT h.person_id, p.name, h.role FROM board_role h JOIN person p ON p.id = h.person_id"
            " WHERE h.board_id = %(board)s ORDER BY lower(p.name)",
            {"board": board},
        )
        return [(row["person_id"], row["name"], row["role"]) for row in found]

    def set_role_on(
        self, board: int, person: PersonId, role: BoardRole | None, *, by: str, now: datetime | None = None
    ) -> None:
        """Give them a role on this board, or none."""
        at = or_now(now)
        told = {"board": board, "person": person, "role": role}
        statement = (
            b"DELETE FROM board_role WHERE board_id = %(board)s AND person_id = %(person)s"
            if role is None
            else b"INSERT INTO board_role (board_id, person_id, role) VALUES (%(board)s, %(person)s, %(role)s)"
            b" ON CONFLICT (board_id, person_id) DO UPDATE SET role = excluded.role"
        )
        with self._pool.transaction() as connection:
            connection.execute(statement, told)
            said = {"person": person, "role": role, "by": by}
            note_event(connection, "staff.board_role", f"board:{board}", said, at)

    def plan(self, course: str, rows: Sequence[Row], *, remove: bool, issuer: str) -> Plan:
        """What importing these rows would do."""
        with self._pool.transaction() as connection:
            return _planned(connection, course, rows, remove=remove, issuer=issuer)

    def take(
        self, course: str, rows: Sequence[Row], *, remove: bool, issuer: str, by: str, now: datetime | None = None
    ) -> Plan:
        """Import these rows, all or none of them; concurrent imports wait for one another. Invalid with each problem by
        its line."""
        at = or_now(now)
        try:
            with self._pool.transaction() as connection:
                connection.execute(b"SELECT pg_advisory_xact_lock(%s)", (NEWCOMER_LOCK,))
                plan = _planned(connection, course, rows, remove=remove, issuer=issuer)
                if plan.problems:
                    raise roster.refusal(plan.problems)
                _carry_out(connection, course, plan, issuer=issuer, by=by, at=at)
        except psycopg.errors.UniqueViolation:
            raise BackendTrouble(
                "database", "somebody else added the same people meanwhile; import the file again"
            ) from None
        return plan

    def place(
        self,
        course: str,
        person: PersonId,
        *,
        by: str,
        section: str | None = None,
        team: str | None = None,
        role: CourseRole | None = None,
        no_section: bool = False,
        no_team: bool = False,
        now: datetime | None = None,
    ) -> Enrolled:
        """Put them on the roster, or change what is given of their place there."""
        at = or_now(now)
        told = {
            "course": course,
            "person": person,
            "section": section,
            "team": team,
            "role": role,
            "has_section": section is not None or no_section,
            "has_team": team is not None or no_team,
            "now": at,
        }
        said: dict[str, Any] = {"person": person, "by": by}
        said |= {name: told[name] for name in ("section", "team") if told[f"has_{name}"]}
        said |= {} if role is None else {"role": role}
        with self._pool.transaction() as connection:
            connection.execute(_ENROL.encode(), told)
            note_event(connection, "staff.roster.place", f"course:{course}", said, at)
            _note_boards(connection, course, at)
        return self.get(course, person)

    def drop(self, course: str, person: PersonId, *, by: str, now: datetime | None = None) -> None:
        """Take them off the roster; what they submitted stays."""
        at = or_now(now)
        with self._pool.transaction() as connection:
            found = connection.execute(
                b"DELETE FROM roster WHERE course = %(course)s AND person_id = %(person)s RETURNING person_id",
                {"course": course, "person": person},
            ).fetchone()
            if found is None:
                raise NotFound(f"person on the roster of {course}", str(person))
            note_event(connection, "staff.roster.drop", f"course:{course}", {"person": person, "by": by}, at)
            _note_boards(connection, course, at)


def _planned(connection: Connection, course: str, rows: Sequence[Row], *, remove: bool, issuer: str) -> Plan:
    people = [row.person.casefold() for row in rows if row.person]
    numbers = [one.removeprefix("person:") for one in people]
    told = {
        "course": course,
        "issuer": issuer.rstrip("/"),
        "emails": [row.email.lower() for row in rows if row.email],
        "ids": [row.student_id.lower() for row in rows if row.student_id],
        "subjects": [row.subject for row in rows if row.subject],
        "names": people,
        "numbers": [int(one) for one in numbers if one.isascii() and one.isdecimal() and len(one) < 19],
    }
    known = [Known(**row) for row in connection.execute(_KNOWN.encode(), told)]
    return roster.planned(rows, known, remove=remove)


def _carry_out(connection: Connection, course: str, plan: Plan, *, issuer: str, by: str, at: datetime) -> None:
    made = iter(_newcomers(connection, [one.name for one in plan.changes if one.person_id is None], at))
    changed: dict[str, list[int]] = {"added": [], "changed": [], "removed": []}
    said = {"add": "added", "change": "changed", "remove": "removed"}
    told: list[dict[str, Any]] = []
    for one in plan.changes:
        if one.what == "same":
            continue
        person = next(made) if one.person_id is None else one.person_id
        changed[said[one.what]].append(person)
        if one.row is not None:
            told.append(_of_row(one.row, course, person, issuer, at))
    with connection.cursor() as cursor:
        cursor.executemany(_KEEP.encode(), told)
        cursor.executemany(_ENROL.encode(), told)
        cursor.executemany(_LINK.encode(), [one for one in told if one["subject"] is not None])
    connection.execute(
        b"DELETE FROM roster WHERE course = %(course)s AND person_id = ANY(%(gone)s)",
        {"course": course, "gone": changed["removed"]},
    )
    if any(changed.values()):
        note_event(connection, "staff.roster.import", f"course:{course}", {**changed, "by": by}, at)
        _note_boards(connection, course, at)


def _note_boards(connection: Connection, course: str, at: datetime) -> None:
    """Sections and teams decide what counts on the course's boards: their standings are read again."""
    for board in connection.execute(
        b"SELECT id FROM leaderboard WHERE course = %(course)s AND deleted_at IS NULL ORDER BY id", {"course": course}
    ).fetchall():
        note_event(connection, "board.roster", f"board:{board['id']}", {}, at)


def _of_row(row: Row, course: str, person: int, issuer: str, at: datetime) -> dict[str, Any]:
    return {
        "course": course,
        "person": person,
        "name": row.name,
        "email": row.email,
        "student_id": row.student_id,
        "extra": Jsonb(dict(row.extra)),
        "section": row.section,
        "team": row.team,
        "role": row.role,
        "has_section": row.has_section,
        "has_team": row.has_team,
        "subject": row.subject,
        "issuer": issuer.rstrip("/"),
        "now": at,
    }


def _newcomers(connection: Connection, names: Sequence[str], at: datetime) -> list[int]:
    """New people who are called so, or as nearly so as is free; in this order."""
    taken = {row["name"] for row in connection.execute(b"SELECT lower(name) AS name FROM person")} if names else set()
    free: list[str] = []
    for name in names:
        free.append(_free_name(name, taken))
        taken.add(free[-1].lower())
    made = connection.execute(
        b"INSERT INTO person (name, created_at) SELECT unnest(%(names)s::text[]), %(now)s RETURNING id, name",
        {"names": free, "now": at},
    )
    by_name = {row["name"]: row["id"] for row in made}
    return [by_name[name] for name in free]


def _free_name(name: str, taken: Collection[str]) -> str:
    """`Ada Lovelace`, else `Ada Lovelace 2`; no two people are called the same."""
    usual = seen_name(name)[: NAME_CAP - 6].strip()
    if not usual or is_like_a_number(usual):
        usual = "somebody"
    wanted, number = usual, 1
    while wanted.lower() in taken:
        number += 1
        wanted = f"{usual} {number}"
    return wanted
