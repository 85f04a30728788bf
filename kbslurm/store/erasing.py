"""Deleting a person: what is personal goes, what they did stays under a pseudonym.

Personal are their name, accounts, tokens, the personal data that came with a roster, their places on rosters and
boards, and what they asked, with the answers that only they were given. Submissions, verdicts and scores stay, since
others' ranks depend on them; code and file names are their author's work and stay as they are. The audit log may not
lose a line: in the lines about them, and in those of what they did as a host, their name becomes the pseudonym, and
accounts and reasons go.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from kbslurm.domain.run import PersonId
from kbslurm.errors import NotFound
from kbslurm.store.archives import Archive, earlier
from kbslurm.store.connect import Connection, Pool
from kbslurm.store.gpu_budgets import LOCK_USE
from kbslurm.store.rows import Rows, note_event, or_now, row_of

# Where hosts are noted by their name.
BY_NAME = (
    ("rejudging", "created_by"),
    ("final", "created_by"),
    ("shadow", "created_by"),
    ("keeper", "asked_by"),
    ("finalisation", "decided_by"),
    ("question", "answered_by"),
    ("archive", "written_by"),
    ("place_drain", "drained_by"),
)
PSEUDONYM = "deleted-"

_WORDS = """
SELECT p.id, p.name, p.role, p.discord_id, p.github_id, p.cluster_account, p.ban_reason, d.full_name, d.email,
    d.student_id, d.person_id IS NOT NULL AS has_personal_data, coalesce(d.extra, '{}') AS extra,
    ARRAY(SELECT o.subject FROM oidc_account o WHERE o.person_id = p.id) AS subjects,
    ARRAY(SELECT r.course FROM roster r WHERE r.person_id = p.id ORDER BY r.course) AS courses,
    (SELECT count(*) FROM token t WHERE t.person_id = p.id) AS tokens,
    (SELECT count(*) FROM board_role h WHERE h.person_id = p.id) AS roles,
    (SELECT count(*) FROM question q WHERE q.person_id = p.id AND q.text <> '') AS questions,
    (SELECT count(*) FROM submission s WHERE s.person_id = p.id) AS submissions,
    (SELECT count(*) FROM run r WHERE r.person_id = p.id AND r.ended_at IS NULL) AS open_runs
FROM person p LEFT JOIN personal_data d ON d.person_id = p.id WHERE p.id = %(person)s
"""
# Lines of the audit log that say something personal of them: as words, or in a line about them.
_LINES = """
SELECT e.id, e.data, e.subject = 'person:' || %(person)s AS of_them FROM event e
WHERE e.kind ~ '^(staff|person|board)[.]' AND (
    e.subject = 'person:' || %(person)s AND e.data ?| '{name,reason,account,device,cluster_account}'
    OR EXISTS (SELECT 1 FROM jsonb_path_query(e.data, 'strict $.**') word
        WHERE jsonb_typeof(word) = 'string' AND (lower(word #>> '{}') = ANY(%(words)s)
            OR starts_with(word #>> '{}', %(name)s || ' (Discord role '))))
ORDER BY e.id
"""
# What was told to everyone stays: it is no longer theirs alone.
_FORGET_QUESTIONS = b"""
UPDATE question SET text = '', answer = CASE WHEN to_all THEN answer ELSE '' END,
    state = CASE WHEN state = 'open' THEN 'closed' ELSE state END
WHERE person_id = %(id)s
"""
# Last signs of somebody: a submission, a question, a token's use or issue, or when they were added or their place was
# changed.
_DUE = """
SELECT p.id, p.name, greatest(p.created_at, d.changed_at,
    (SELECT max(s.accepted_at) FROM submission s WHERE s.person_id = p.id),
    (SELECT max(q.asked_at) FROM question q WHERE q.person_id = p.id),
    (SELECT max(greatest(t.used_at, t.created_at)) FROM token t WHERE t.person_id = p.id AND t.kind <> 'invite'),
    (SELECT max(r.added_at) FROM roster r WHERE r.person_id = p.id)) AS last_at
FROM person p LEFT JOIN personal_data d ON d.person_id = p.id
WHERE p.role = 'participant' AND NOT starts_with(p.name, %(pseudonym)s)
"""


@dataclass(frozen=True, kw_only=True)
class Erasure:
    """What deleting somebody erases, and what stays under the pseudonym (None: not done yet). `archives`: those written
    before, which a host has to write again."""

    person_id: PersonId
    name: str
    role: str
    pseudonym: str | None
    erased: Mapping[str, int]
    courses: tuple[str, ...]
    open_runs: int
    submissions: int
    audit_lines: int
    archives: tuple[Archive, ...]


@dataclass(frozen=True, kw_only=True)
class Due:
    """Somebody whose retention period is over."""

    person_id: PersonId
    name: str
    last_at: datetime


class Erasing(Rows):
    """Deleting people."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)

    def preview(self, person: PersonId) -> Erasure:
        """What deleting them would do."""
        with self._pool.transaction() as connection:
            found = _found(connection, person)
            return _told(found, None, len(_lines(connection, found)), earlier(connection, person))

    def erase(self, person: PersonId, *, by: str, now: datetime | None = None) -> Erasure:
        """Delete them for good, in one transaction."""
        at, pseudonym = or_now(now), f"{PSEUDONYM}{secrets.token_hex(4)}"
        with self._pool.transaction() as connection:
            own = row_of(connection, "SELECT 1 AS one FROM gpu_budget WHERE person_id = %(id)s", {"id": person})
            if own is not None:
                connection.execute(LOCK_USE.encode())  # attempts that end wait meanwhile
            connection.execute(b"SELECT id FROM person WHERE id = %(id)s FOR UPDATE", {"id": person})
            found = _found(connection, person)
            archives = earlier(connection, person)
            connection.execute(b"SELECT set_config('kbslurm.erasing', 'on', true)")
            lines = _lines(connection, found)
            for line in lines:
                told = {"id": line["id"], "data": Jsonb(_without(line["data"], found, pseudonym, line["of_them"]))}
                connection.execute(b"UPDATE event SET data = %(data)s WHERE id = %(id)s", told)
            connection.execute(b"SELECT set_config('kbslurm.erasing', '', true)")
            _forget(connection, found, pseudonym)
            erasure = _told(found, pseudonym, len(lines), archives)
            host = pseudonym if by == found["name"] else by  # whoever deletes themselves
            said = {"pseudonym": pseudonym, "erased": dict(erasure.erased), "by": host}
            note_event(connection, "staff.user.delete", f"person:{person}", said, at)
            for board in connection.execute(
                b"SELECT DISTINCT board_id AS id FROM submission WHERE person_id = %(id)s", {"id": person}
            ).fetchall():
                note_event(connection, "board.roster", f"board:{board['id']}", {}, at)
        return erasure

    def due(self, before: datetime) -> list[Due]:
        """Participants of whom nothing was heard since then, longest ago first."""
        found = self._all(
            f"SELECT * FROM ({_DUE}) known WHERE last_at < %(before)s ORDER BY last_at, id",
            {"before": before, "pseudonym": PSEUDONYM},
        )
        return [Due(person_id=PersonId(row["id"]), name=row["name"], last_at=row["last_at"]) for row in found]


def _found(connection: Connection, person: PersonId) -> dict[str, Any]:
    found = connection.execute(_WORDS.encode(), {"person": person}).fetchone()
    if found is None:
        raise NotFound("person", str(person))
    return dict(found)


def _words(found: Mapping[str, Any]) -> set[str]:
    """What means them wherever it stands, in lower case."""
    words = {found[key] for key in ("name", "full_name", "email", "student_id", "discord_id", "github_id")}
    words |= {found["cluster_account"], *found["subjects"]}
    words |= {f"{provider}:{found[f'{provider}_id']}" for provider in ("discord", "github") if found[f"{provider}_id"]}
    words |= {f"oidc:{subject}" for subject in found["subjects"]}
    return {word.lower() for word in words if word}


def _lines(connection: Connection, found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    told = {"person": found["id"], "words": sorted(_words(found)), "name": found["name"]}
    return list(connection.execute(_LINES.encode(), told))


def _without(data: Any, found: Mapping[str, Any], pseudonym: str, of_them: bool) -> Any:
    """The data of a line with the pseudonym for the name, and without what else is personal."""
    words, name = _words(found), found["name"]

    def cleared(value: Any) -> Any:
        match value:
            case str() if value.lower() in {name.lower(), (found["full_name"] or name).lower()}:
                return pseudonym
            case str() if value.startswith(f"{name} (Discord role "):
                return f"{pseudonym}{value[len(name) :]}"
            case str() if value.lower() in words:
                return ""
            case dict():
                return {key: cleared(one) for key, one in value.items()}
            case list():
                return [cleared(one) for one in value]
            case _:
                return value

    told = cleared(data)
    if of_them:  # what hosts wrote about them, in words of their own
        told = {
            key: "" if key in ("reason", "account", "device", "cluster_account") else one for key, one in told.items()
        }
        told |= {"name": pseudonym} if "name" in told else {}
    return told


def _forget(connection: Connection, found: Mapping[str, Any], pseudonym: str) -> None:
    told = {"id": found["id"], "pseudonym": pseudonym, "name": found["name"]}
    personal = ("personal_data", "oidc_account", "token", "roster", "board_role", "extension", "code_consent")
    for table in (*personal, "nickname"):
        connection.execute(f"DELETE FROM {table} WHERE person_id = %(id)s".encode(), told)
    own_budgets = "SELECT id FROM gpu_budget WHERE person_id = %(id)s"
    connection.execute(f"DELETE FROM gpu_budget_use WHERE budget_id IN ({own_budgets})".encode(), told)
    connection.execute(b"DELETE FROM gpu_budget WHERE person_id = %(id)s", told)
    connection.execute(
        b"UPDATE person SET name = %(pseudonym)s, role = 'participant', discord_id = NULL, github_id = NULL,"
        b" ban_reason = '', team = NULL, cluster_account = NULL WHERE id = %(id)s",
        told,
    )
    connection.execute(_FORGET_QUESTIONS, told)
    for table, column in BY_NAME:
        connection.execute(
            f"UPDATE {table} SET {column} = %(pseudonym)s WHERE lower({column}) = lower(%(name)s)".encode(), told
        )
        connection.execute(
            f"UPDATE {table} SET {column} = %(pseudonym)s || substr({column}, length(%(name)s) + 1)"
            f" WHERE starts_with({column}, %(name)s || ' (Discord role ')".encode(),
            told,
        )


def _told(found: Mapping[str, Any], pseudonym: str | None, lines: int, archives: tuple[Archive, ...]) -> Erasure:
    accounts = len(found["subjects"]) + sum(found[key] is not None for key in ("discord_id", "github_id"))
    return Erasure(
        person_id=PersonId(found["id"]),
        name=found["name"],
        role=found["role"],
        pseudonym=pseudonym,
        erased={
            "personal_data": int(found["has_personal_data"]),
            "accounts": accounts,
            "tokens": found["tokens"],
            "courses": len(found["courses"]),
            "roles": found["roles"],
            "questions": found["questions"],
        },
        courses=tuple(found["courses"]),
        open_runs=found["open_runs"],
        submissions=found["submissions"],
        audit_lines=lines,
        archives=archives,
    )
