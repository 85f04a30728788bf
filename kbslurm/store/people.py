"""People: their names, roles, teams and bans, and their linked accounts."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import psycopg
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from kbslurm.domain import contest
from kbslurm.domain.access import Role
from kbslurm.domain.run import PersonId
from kbslurm.errors import Invalid, NotFound, Refused
from kbslurm.store.connect import Connection, Pool
from kbslurm.store.events import Events
from kbslurm.store.rows import Rows, note_event, or_now
from kbslurm.store.views import Person

NAME_CAP = 64
NEWCOMER_LOCK = 4_927_308
SERVICE = "house"
PERSON = "id, name, role, banned_at, ban_reason, discord_id, github_id, created_at, team, cluster_account"

# Locked, so that two owners who change each other's role at once don't leave the site without one.
_OWNERS = "owners AS (SELECT id FROM person WHERE role = 'owner' AND banned_at IS NULL ORDER BY id FOR UPDATE)"
_LEAVES_AN_OWNER = "(%(id)s NOT IN (SELECT id FROM owners) OR EXISTS (SELECT 1 FROM owners WHERE owners.id <> %(id)s))"
# Printable to Python, and yet without a shape: joiners, fillers, blanks, and the selectors of variants.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef]"
)
# Providers and configurations write the address with or without a trailing slash.
_THIS_ISSUER = "issuer IN (%(issuer)s, %(issuer)s || '/')"
# Whom a verified address means. Never staff: who enters somebody's address mustn't get their rights by it.
_EXPECTED = f"""
SELECT p.id FROM person p JOIN personal_data d ON d.person_id = p.id
WHERE lower(d.email) = lower(%(email)s) AND p.role = 'participant'
    AND NOT EXISTS (SELECT 1 FROM oidc_account WHERE person_id = p.id AND {_THIS_ISSUER})
"""

# Whom a host means by a text, and which of them.
_MATCHES = """
(%(text)s = '' OR strpos(lower(p.name), %(text)s) > 0 OR strpos(lower(coalesce(d.full_name, '')), %(text)s) > 0
    OR strpos(lower(coalesce(d.email, '')), %(text)s) > 0 OR p.id::text = %(text)s OR p.discord_id = %(text)s
    OR p.github_id = %(text)s OR lower(coalesce(d.student_id, '')) = %(text)s OR lower(p.team) = %(text)s)
AND (%(id)s::bigint IS NULL OR p.id = %(id)s)
AND CASE %(only)s WHEN 'staff' THEN p.role <> 'participant' WHEN 'banned' THEN p.banned_at IS NOT NULL ELSE true END
"""
# Only those that are shown are looked up in the other tables.
_KNOWN = f"""
SELECT p.*, d.email, d.full_name,
    EXISTS (SELECT 1 FROM oidc_account o WHERE o.person_id = p.id) AS university,
    ARRAY(SELECT r.course FROM roster r WHERE r.person_id = p.id ORDER BY r.course) AS courses,
    (SELECT count(*) FROM submission s WHERE s.person_id = p.id AND s.removed_at IS NULL) AS submissions,
    (SELECT max(t.used_at) FROM token t WHERE t.person_id = p.id) AS seen_at
FROM (
    SELECT p.id FROM person p LEFT JOIN personal_data d ON d.person_id = p.id WHERE {_MATCHES}
    ORDER BY p.role = 'participant', lower(p.name) LIMIT %(limit)s OFFSET %(offset)s
) chosen JOIN person p ON p.id = chosen.id LEFT JOIN personal_data d ON d.person_id = p.id
ORDER BY p.role = 'participant', lower(p.name)
"""
Group = Literal["staff", "banned"]


@dataclass(frozen=True, kw_only=True)
class Known:
    """A person as hosts know them. `university`: they have signed in through one."""

    person: Person
    email: str | None
    full_name: str | None
    courses: tuple[str, ...]
    university: bool
    submissions: int
    seen_at: datetime | None


class People(Rows):
    """Everyone who submits or hosts."""

    def __init__(self, pool: Pool, events: Events) -> None:
        super().__init__(pool)
        self._events = events

    def add(
        self, name: str, role: Role = "participant", *, by: str | None = None, now: datetime | None = None
    ) -> Person:
        """Add a person. Invalid if the name is taken (in any case) or isn't valid."""
        at = or_now(now)
        told = {"name": person_name(name), "role": role, "now": at}
        statement = (
            f"INSERT INTO person (name, role, created_at) VALUES (%(name)s, %(role)s, %(now)s) RETURNING {PERSON}"
        )
        try:
            with self._pool.transaction() as connection:
                found = connection.execute(statement.encode(), told).fetchone()
                assert found is not None
                if by is not None:
                    what = {"name": told["name"], "role": role, "by": by}
                    note_event(connection, "staff.user.add", f"person:{found['id']}", what, at)
        except psycopg.errors.UniqueViolation:
            raise Invalid(f"there is already a person {told['name']!r}", hint="Choose another name.") from None
        return _person(found)

    def ensure(
        self, name: str, role: Role = "participant", *, by: str | None = None, now: datetime | None = None
    ) -> Person:
        """The person with this name, created if needed. An existing one keeps its role. Only for a database whose user
        decides who is in it: the demo's, and one's own."""
        told = {"name": person_name(name), "role": role, "now": or_now(now)}
        with self._pool.transaction() as connection:
            made = connection.execute(
                b"INSERT INTO person (name, role, created_at) VALUES (%(name)s, %(role)s, %(now)s)"
                b" ON CONFLICT (lower(name)) DO NOTHING RETURNING id",
                told,
            ).fetchone()
            if made is not None and by is not None:
                what = {"name": told["name"], "role": role, "by": by}
                note_event(connection, "staff.user.add", f"person:{made['id']}", what, or_now(now))
        found = self.find(name)
        assert found is not None
        return found

    def find(self, name: str) -> Person | None:
        """The person with this name, in any case."""
        return maybe_person(
            self._one(f"SELECT {PERSON} FROM person WHERE lower(name) = lower(%(name)s)", {"name": name.strip()})
        )

    def by_email(self, email: str) -> Person | None:
        """The person whom a roster has with this e-mail address, in any case."""
        return maybe_person(
            self._one(
                f"SELECT {PERSON} FROM person WHERE id = (SELECT person_id FROM personal_data"
                " WHERE lower(email) = lower(%(email)s))",
                {"email": email.strip()},
            )
        )

    def by_id(self, person: PersonId) -> Person | None:
        return maybe_person(self._one(f"SELECT {PERSON} FROM person WHERE id = %(id)s", {"id": person}))

    def by_account(self, provider: str, account: str) -> Person | None:
        """The person who linked this `discord` or `github` account."""
        return maybe_person(
            self._one(f"SELECT {PERSON} FROM person WHERE {_account(provider)} = %(account)s", {"account": account})
        )

    def by_name_or_id(self, text: str) -> Person | None:
        """The person with this number, else with this name."""
        if text.isascii() and text.isdecimal() and len(text) < 19:
            return self.by_id(PersonId(int(text)))
        return self.find(text)

    def for_account(self, provider: str, account: str, name: str, *, by: str, now: datetime | None = None) -> Person:
        """The person with this account; if there is none, a new person under a free name."""
        found = self.by_account(provider, account)
        if found is not None:
            return found
        with self._newcomers_in_turn():
            found = self.by_account(provider, account)
            if found is not None:
                return found
            wanted = self._free_name(name, f"{provider} {account[-8:]}")
            person = self.add(wanted, now=now)
            self.link_account(person.id, provider, account)
            self._events.audit(by, "user.add", f"person:{person.id}", {"name": wanted, "account": provider}, now=now)
        return self.get(person.id)

    def for_subject(
        self, issuer: str, subject: str, name: str, *, email: str | None = None, now: datetime | None = None
    ) -> Person:
        """The person with this subject at a university's provider. The first time it is whoever a host has entered on a
        roster with this address, which the provider must have verified; else a new person."""
        told = {"issuer": issuer.rstrip("/"), "subject": subject, "email": email}
        statement = f"SELECT person_id FROM oidc_account WHERE {_THIS_ISSUER} AND subject = %(subject)s"
        found = self._one(statement, told)
        if found is not None:
            return self.get(PersonId(found["person_id"]))
        with self._newcomers_in_turn():
            found = self._one(statement, told)
            if found is None:
                expected = None if email is None else self._one(_EXPECTED, told)
                person = PersonId(expected["id"]) if expected else self._signed_on_first(name, subject, now)
                if expected:
                    self._events.audit("sign-on", "link", f"person:{person}", {"account": "oidc"}, now=now)
                self._do(
                    "INSERT INTO oidc_account (issuer, subject, person_id) VALUES (%(issuer)s, %(subject)s, %(person)s)"
                    " ON CONFLICT DO NOTHING",
                    {**told, "person": person},
                )
                found = self._one(statement, told)
                assert found is not None
        return self.get(PersonId(found["person_id"]))

    def _signed_on_first(self, name: str, subject: str, now: datetime | None) -> PersonId:
        person = self.add(self._free_name(name, subject[-8:]), now=now)
        self._events.audit("sign-on", "user.add", f"person:{person.id}", {"account": "oidc"}, now=now)
        return person.id

    def link_account(self, person: PersonId, provider: str, account: str) -> None:
        """Link this account to the person. Invalid if it belongs to someone else, or they have another."""
        column = _account(provider)
        try:
            found = self._one(
                f"UPDATE person SET {column} = %(account)s"
                f" WHERE id = %(id)s AND ({column} IS NULL OR {column} = %(account)s) RETURNING id",
                {"id": person, "account": account},
            )
        except psycopg.errors.UniqueViolation:
            raise Invalid(f"that {provider} account belongs to someone else", hint="Ask a host.") from None
        if found is None:
            raise Invalid(f"this person already has another {provider} account", hint="Ask a host.")

    def link_subject(self, person: PersonId, issuer: str, subject: str) -> None:
        """Also link a university account to the person. Invalid if it belongs to someone else, or they have another of
        the same university."""
        told = {"issuer": issuer.rstrip("/"), "subject": subject, "person": person}
        self._do(
            "INSERT INTO oidc_account (issuer, subject, person_id) SELECT %(issuer)s, %(subject)s, id FROM person"
            " WHERE id = %(person)s AND NOT EXISTS (SELECT 1 FROM oidc_account"
            f" WHERE {_THIS_ISSUER} AND (person_id = %(person)s OR subject = %(subject)s)) ON CONFLICT DO NOTHING",
            told,
        )
        found = self._one(f"SELECT person_id FROM oidc_account WHERE {_THIS_ISSUER} AND subject = %(subject)s", told)
        if found is None:
            raise Invalid("you already have another account at this university", hint="Ask a host.")
        if found["person_id"] != person:
            raise Invalid("that university account belongs to someone else", hint="Ask a host.")

    def all(self) -> list[Person]:
        return [_person(found) for found in self._all(f"SELECT {PERSON} FROM person ORDER BY lower(name)")]

    def like(self, text: str, *, limit: int) -> list[Person]:
        """People whose names contain this text, in any case; those that begin with it first."""
        told = {"text": text.lower(), "limit": limit}
        found = self._all(
            f"SELECT {PERSON} FROM person WHERE strpos(lower(name), %(text)s) > 0"
            " ORDER BY strpos(lower(name), %(text)s), lower(name) LIMIT %(limit)s",
            told,
        )
        return [_person(one) for one in found]

    def search(self, text: str, *, only: Group | None = None, limit: int, offset: int = 0) -> list[Known]:
        """People by a part of their name, full name or e-mail address, or by one of their numbers; all without a text.
        Staff first, then by name."""
        told = {"text": text.strip().lower(), "only": only or "", "id": None, "limit": limit, "offset": offset}
        return [_known(row) for row in self._all(_KNOWN, told)]

    def known(self, person: PersonId) -> Known:
        """The same of one person, or NotFound."""
        found = self._one(_KNOWN, {"text": "", "only": "", "id": person, "limit": 1, "offset": 0})
        if found is None:
            raise NotFound("person", str(person))
        return _known(found)

    def count(self, text: str, *, only: Group | None = None) -> int:
        """How many those are."""
        found = self._one(
            f"SELECT count(*) AS n FROM person p LEFT JOIN personal_data d ON d.person_id = p.id WHERE {_MATCHES}",
            {"text": text.strip().lower(), "only": only or "", "id": None},
        )
        return 0 if found is None else int(found["n"])

    def names(self, people: Collection[int]) -> dict[int, str]:
        """What these are called, by their numbers."""
        found = self._all("SELECT id, name FROM person WHERE id = ANY(%(people)s)", {"people": list(people)})
        return {row["id"]: row["name"] for row in found}

    def set_role(self, person: PersonId, role: Role, *, by: str | None = None, now: datetime | None = None) -> Person:
        """Change their role. Refused if the site would have no owner left."""
        done = self._change(
            "person",
            f"WITH {_OWNERS} UPDATE person SET role = %(role)s"
            f" WHERE id = %(id)s AND (%(role)s = 'owner' OR {_LEAVES_AN_OWNER}) RETURNING id",
            {"id": person, "role": role},
            (by, "role", f"person:{person}", {"role": role}),
            now,
            required=False,
        )
        if not done:
            self._refuse_last_owner(person, "give up that role")
        return self.get(person)

    def set_team(
        self, person: PersonId, team: str | None, *, by: str | None = None, now: datetime | None = None
    ) -> Person:
        """Set the team that they submit for from now on, or none. Earlier submissions stay with their team."""
        named = None if team is None else contest.team_name(team)
        self._change(
            "person",
            "UPDATE person SET team = %(team)s WHERE id = %(id)s RETURNING id",
            {"id": person, "team": named},
            (by, "team", f"person:{person}", {"team": named}),
            now,
        )
        return self.get(person)

    def set_cluster_account(
        self, person: PersonId, account: str | None, *, by: str | None = None, now: datetime | None = None
    ) -> Person:
        """Set the account that pays for their jobs where a cluster charges each person's own, or none."""
        named = None if account is None else contest.cluster_account(account)
        self._change(
            "person",
            "UPDATE person SET cluster_account = %(account)s WHERE id = %(id)s RETURNING id",
            {"id": person, "account": named},
            (by, "cluster_account", f"person:{person}", {"cluster_account": named}),
            now,
        )
        return self.get(person)

    def ban(
        self,
        person: PersonId,
        reason: str = "",
        *,
        by: str | None = None,
        now: datetime | None = None,
        last_owner_too: bool = True,
    ) -> Person:
        """Ban them: until it is lifted they are hidden from every board and no token of theirs is valid; browsers are
        signed out for good. Refused for the last owner unless `last_owner_too`, as for whoever runs the service."""
        done = self._change(
            "person",
            f"WITH {_OWNERS}, banned AS (UPDATE person SET banned_at = coalesce(banned_at, %(now)s),"
            f" ban_reason = %(reason)s WHERE id = %(id)s AND (%(last_too)s OR {_LEAVES_AN_OWNER}) RETURNING id),"
            " ended AS (UPDATE token SET revoked_at = %(now)s FROM banned"
            " WHERE person_id = banned.id AND kind = 'web' AND revoked_at IS NULL)"
            " SELECT id FROM banned",
            {"id": person, "reason": reason, "now": or_now(now), "last_too": last_owner_too},
            (by, "ban", f"person:{person}", {"reason": reason}),
            now,
            required=False,
        )
        if not done:
            self._refuse_last_owner(person, "be banned")
        return self.get(person)

    def _refuse_last_owner(self, person: PersonId, what: str) -> None:
        """Why nothing was changed: NotFound without such a person, else Refused."""
        name = self.get(person).name
        raise Refused(
            f"{name} is the site's only owner and can't {what}",
            hint="Make somebody else an owner first: kbslurm user role NAME owner",
        )

    def unban(self, person: PersonId, *, by: str | None = None, now: datetime | None = None) -> Person:
        self._change(
            "person",
            "UPDATE person SET banned_at = NULL, ban_reason = '' WHERE id = %(id)s RETURNING id",
            {"id": person},
            (by, "unban", f"person:{person}", {}),
            now,
        )
        return self.get(person)

    def service_person(self, *, now: datetime) -> PersonId:
        """The owner of the service's own submissions."""
        with self._pool.transaction() as connection:
            return own_person(connection, now)

    def get(self, person: PersonId) -> Person:
        found = self.by_id(person)
        if found is None:
            raise NotFound("person", str(person))
        return found

    def _free_name(self, name: str, mark: str) -> str:
        """A free name, as close to the wanted one as possible."""
        usual = seen_name(name)[:NAME_CAP].strip() or "somebody"
        for wanted in (usual, f"{usual[:40]} ({mark})"):
            if wanted.isprintable() and not is_like_a_number(wanted) and self.find(wanted) is None:
                return wanted
        return f"somebody {secrets.token_hex(4)}"

    @contextmanager
    def _newcomers_in_turn(self) -> Iterator[None]:
        """Concurrent calls for one account (a double click) make one person; two accounts with one name make two."""
        with self._pool.transaction() as connection:
            connection.execute(b"SELECT pg_advisory_xact_lock(%s)", (NEWCOMER_LOCK,))
            yield


def person_name(text: str) -> str:
    """The name in canonical form, or Invalid."""
    name = seen_name(text)
    if not name or len(name) > NAME_CAP or not name.isprintable():
        raise Invalid(
            f"{text[:80]!r} isn't a valid name for a person", hint=f"Use 1 to {NAME_CAP} printable characters."
        )
    if is_like_a_number(name):
        raise Invalid(
            f"{name!r} isn't a valid name for a person: it would be taken for somebody's number or account",
            hint="Choose a name with letters in it, without discord:, github: or person: before them.",
        )
    return name


def seen_name(text: str) -> str:
    """The name without what nobody sees: otherwise one could be empty to the eye, or the very image of another."""
    return " ".join(_UNSEEN.sub("", text).split())


def is_like_a_number(name: str) -> bool:
    """Whether a host who types this name would mean whoever has that number or account: names are chosen freely, and a
    ban must not reach somebody else."""
    return name.isdecimal() or name.lower().startswith(("discord:", "github:", "oidc:", "person:"))


def _account(provider: str) -> str:
    columns = {"discord": "discord_id", "github": "github_id"}
    if provider not in columns:
        raise NotFound("account provider", provider, known=list(columns))
    return columns[provider]


def _person(row: DictRow) -> Person:
    return Person(**row)


def _known(row: DictRow) -> Known:
    return Known(
        person=_person({name: row[name] for name in PERSON.split(", ")}),
        email=row["email"],
        full_name=row["full_name"],
        courses=tuple(row["courses"]),
        university=row["university"],
        submissions=row["submissions"],
        seen_at=row["seen_at"],
    )


def maybe_person(row: DictRow | None) -> Person | None:
    return None if row is None else Person(**row)


def own_person(connection: Connection, now: datetime) -> PersonId:
    """The owner of the service's own runs: a person that nobody can sign in as, created when first needed."""
    found = connection.execute(b"SELECT value FROM setting WHERE key = %(key)s", {"key": SERVICE}).fetchone()
    if found is not None:
        return PersonId(found["value"])
    made = connection.execute(
        b"INSERT INTO person (name, role, created_at) VALUES (%(name)s, 'staff', %(now)s)"
        b" ON CONFLICT (lower(name)) DO NOTHING RETURNING id",
        {"name": SERVICE, "now": now},
    ).fetchone()
    if made is None:  # the name is taken: use another
        made = connection.execute(
            b"INSERT INTO person (name, role, created_at) VALUES (%(name)s, 'staff', %(now)s) RETURNING id",
            {"name": f"{SERVICE} {secrets.token_hex(4)}", "now": now},
        ).fetchone()
    assert made is not None
    connection.execute(
        b"INSERT INTO setting (key, value) VALUES (%(key)s, %(value)s)", {"key": SERVICE, "value": Jsonb(made["id"])}
    )
    note_event(connection, "person.house", f"person:{made['id']}", {}, now)
    return PersonId(made["id"])
