"""The secrets that people sign in with; only their hashes are stored."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from datetime import datetime
from typing import Any

from kbslurm.domain.intake import ServiceToken
from kbslurm.domain.run import PersonId
from kbslurm.errors import NotFound, QuotaSpent
from kbslurm.store.people import PERSON, maybe_person
from kbslurm.store.rows import Rows, note_event, or_now
from kbslurm.store.views import Person, Token, TokenKind

MOST_PENDING = 5000
_TOKEN = "id, person_id, device, kind, created_at, expires_at, revoked_at, used_at, gpu_s_per_day"

# When a token was last used is noted once a minute. A crash may lose that, so no poll waits for the disk for it.
_OWNERS = f"""
WITH held AS (
    SELECT id, hash, person_id, used_at, kind, gpu_s_per_day FROM token
    WHERE hash = ANY(%(hashes)s) AND kind <> 'invite' AND revoked_at IS NULL
        AND (expires_at IS NULL OR expires_at > %(now)s)
), used AS (
    UPDATE token SET used_at = %(now)s FROM held
    WHERE token.id = held.id AND (held.used_at IS NULL OR held.used_at < %(now)s - interval '1 minute')
        AND set_config('synchronous_commit', 'off', true) IS NOT NULL
)
SELECT held.hash, held.id AS token, held.kind, held.gpu_s_per_day,
    {", ".join(f"p.{name.strip()}" for name in PERSON.split(","))}
FROM held JOIN person p ON p.id = held.person_id
"""


def _drawn() -> str:
    """A new secret. It never begins with a dash: people type it after a command, which would take it for an option."""
    while (secret := secrets.token_urlsafe(32)).startswith("-"):
        pass
    return secret


class Tokens(Rows):
    """Tokens of the CLI, the pages and the API, and sign-in states."""

    def issue(
        self,
        person: PersonId | None,
        *,
        kind: TokenKind = "cli",
        device: str = "",
        expires_at: datetime | None = None,
        gpu_s_per_day: float | None = None,
        now: datetime | None = None,
    ) -> str:
        """A new secret, returned only here; the database stores its hash. A pending token has no person yet, and only a
        service token a quota of its own."""
        secret = _drawn()
        self._do(
            "INSERT INTO token (hash, person_id, device, kind, created_at, expires_at, gpu_s_per_day)"
            " VALUES (%(hash)s, %(person)s, %(device)s, %(kind)s, %(now)s, %(expires_at)s, %(gpu_s)s)",
            {
                "hash": _hash(secret),
                "person": person,
                "device": device,
                "kind": kind,
                "now": or_now(now),
                "expires_at": expires_at,
                "gpu_s": gpu_s_per_day,
            },
        )
        return secret

    def person_of(self, secret: str, *, now: datetime | None = None) -> Person | None:
        """The token's owner, or None if it is unknown, revoked, expired or pending. Its use is recorded once a
        minute."""
        return self.people_of([secret], now=now).get(secret)

    def people_of(self, secrets: Collection[str], *, now: datetime | None = None) -> dict[str, Person]:
        """The owners of these tokens, as far as they have one."""
        by_hash = {_hash(secret): secret for secret in secrets}
        found = self._all(_OWNERS, {"hashes": list(by_hash), "now": or_now(now)})
        return {by_hash[bytes(row.pop("hash"))]: _owner(row) for row in found}

    def claim(self, secret: str, person: PersonId, *, device: str = "", now: datetime | None = None) -> bool:
        """Link a pending token to a person, once. False if it isn't pending, or is used, expired or unknown."""
        found = self._one(
            "UPDATE token SET person_id = %(person)s, kind = 'cli', expires_at = NULL,"
            " device = CASE WHEN %(device)s = '' THEN device ELSE %(device)s END"
            " WHERE hash = %(hash)s AND kind = 'pending' AND person_id IS NULL AND revoked_at IS NULL"
            " AND (expires_at IS NULL OR expires_at > %(now)s) RETURNING id",
            {"hash": _hash(secret), "person": person, "device": device, "now": or_now(now)},
        )
        return found is not None

    def invite(
        self, people: Collection[PersonId], *, expires_at: datetime, by: str, course: str, now: datetime | None = None
    ) -> dict[PersonId, str]:
        """An invitation for each of these people: a secret that signs them in once. Earlier unused ones of theirs
        end."""
        at, made = or_now(now), {person: _drawn() for person in people}
        told = [
            {"hash": _hash(secret), "person": person, "until": expires_at, "now": at} for person, secret in made.items()
        ]
        with self._pool.transaction() as connection:
            connection.execute(
                b"UPDATE token SET revoked_at = %(now)s"
                b" WHERE kind = 'invite' AND person_id = ANY(%(people)s) AND revoked_at IS NULL",
                {"people": list(made), "now": at},
            )
            with connection.cursor() as cursor:
                cursor.executemany(
                    b"INSERT INTO token (hash, person_id, kind, device, created_at, expires_at)"
                    b" VALUES (%(hash)s, %(person)s, 'invite', 'invitation', %(now)s, %(until)s)",
                    told,
                )
            said = {"people": sorted(made), "until": expires_at.isoformat(), "by": by}
            note_event(connection, "staff.roster.invite", f"course:{course}", said, at)
        return made

    def invited(self, secret: str, *, now: datetime | None = None) -> Person | None:
        """Whom this invitation is for, or None if it is unknown, used, revoked or expired."""
        return maybe_person(
            self._one(
                f"SELECT {', '.join(f'p.{name.strip()}' for name in PERSON.split(','))}"
                " FROM token t JOIN person p ON p.id = t.person_id"
                " WHERE t.hash = %(hash)s AND t.kind = 'invite' AND t.revoked_at IS NULL AND t.expires_at > %(now)s",
                {"hash": _hash(secret), "now": or_now(now)},
            )
        )

    def accept_invitation(self, secret: str, *, now: datetime | None = None) -> PersonId | None:
        """Use it up, and return whom it was for. None: as for `invited`, or somebody else was quicker."""
        found = self._one(
            "UPDATE token SET revoked_at = %(now)s, used_at = %(now)s WHERE hash = %(hash)s AND kind = 'invite'"
            " AND revoked_at IS NULL AND expires_at > %(now)s RETURNING person_id",
            {"hash": _hash(secret), "now": or_now(now)},
        )
        return None if found is None else PersonId(found["person_id"])

    def was_invited(self, secret: str, person: PersonId) -> bool:
        """Whether this is an invitation of this person, used or not."""
        found = self._one(
            "SELECT 1 AS one FROM token WHERE hash = %(hash)s AND kind = 'invite' AND person_id = %(person)s",
            {"hash": _hash(secret), "person": person},
        )
        return found is not None

    def of_person(self, person: PersonId) -> list[Token]:
        found = self._all(f"SELECT {_TOKEN} FROM token WHERE person_id = %(id)s ORDER BY id", {"id": person})
        return [Token(**row) for row in found]

    def revoke(self, token: int, *, now: datetime | None = None) -> None:
        """Revoke it. Safe to repeat."""
        found = self._one(
            "UPDATE token SET revoked_at = coalesce(revoked_at, %(now)s) WHERE id = %(id)s RETURNING id",
            {"id": token, "now": or_now(now)},
        )
        if found is None:
            raise NotFound("token", str(token))

    def revoke_secret(self, secret: str, *, now: datetime | None = None) -> bool:
        """Revoke the token with this secret."""
        found = self._one(
            "UPDATE token SET revoked_at = %(now)s WHERE hash = %(hash)s AND revoked_at IS NULL RETURNING id",
            {"hash": _hash(secret), "now": or_now(now)},
        )
        return found is not None

    def check_pending_room(self, *, now: datetime) -> None:
        """Refuse a flood of unlinked tokens; those not linked in time are deleted."""
        with self._pool.transaction() as connection:
            connection.execute(
                b"DELETE FROM token WHERE kind = 'pending' AND person_id IS NULL AND expires_at < %(now)s", {"now": now}
            )
            found = connection.execute(
                b"SELECT count(*) AS n, min(expires_at) AS first FROM token"
                b" WHERE kind = 'pending' AND person_id IS NULL"
            ).fetchone()
        assert found is not None
        if found["n"] >= MOST_PENDING:
            raise QuotaSpent(
                "tokens that wait to be linked", used=found["n"], limit=MOST_PENDING, resets_at=found["first"]
            )

    def use_state(self, hashed: bytes, expires_at: datetime, *, now: datetime) -> bool:
        """Use up a sign-in state. False: it was used before."""
        with self._pool.transaction() as connection:
            connection.execute(b"DELETE FROM used_state WHERE expires_at < %(now)s", {"now": now})
            found = connection.execute(
                b"INSERT INTO used_state (hash, expires_at) VALUES (%(hash)s, %(expires_at)s)"
                b" ON CONFLICT DO NOTHING RETURNING hash",
                {"hash": hashed, "expires_at": expires_at},
            ).fetchone()
        return found is not None


def _owner(row: dict[str, Any]) -> Person:
    """A token's owner; by a service token, with that, and without the rights of staff."""
    number, kind, gpu_s_per_day = (row.pop(name) for name in ("token", "kind", "gpu_s_per_day"))
    if kind != "service":
        return Person(**row)
    return Person(**{**row, "role": "participant"}, service=ServiceToken(id=number, gpu_s_per_day=gpu_s_per_day))


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
