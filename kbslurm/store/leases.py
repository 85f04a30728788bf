"""Leases: rows that expire, for leader election."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from kbslurm.store.jsonb import as_jsonb
from kbslurm.store.rows import Rows
from kbslurm.store.views import LeaseState

HOLD_LEASE = """
INSERT INTO lease (name, holder, elected_at, beat_at, expires_at, info)
VALUES (%(name)s, %(holder)s, %(now)s, %(now)s, %(expires_at)s, %(info)s)
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder, beat_at = excluded.beat_at, expires_at = excluded.expires_at, info = excluded.info,
    elected_at = CASE WHEN lease.holder = excluded.holder THEN lease.elected_at ELSE excluded.elected_at END
WHERE lease.holder = excluded.holder OR lease.expires_at <= excluded.beat_at
RETURNING name
"""

RELEASE_LEASE = "DELETE FROM lease WHERE name = %(name)s AND holder = %(holder)s"
LEASE_INFO = "SELECT info FROM lease WHERE name = %(name)s"
LEASES = "SELECT name, holder, elected_at, beat_at, expires_at, info FROM lease ORDER BY name"


class Leases(Rows):
    """ports.Leases."""

    def hold(
        self, name: str, holder: str, ttl_s: float, now: datetime, *, info: Mapping[str, Any] | None = None
    ) -> bool:
        """Take or renew it. Times are the caller's: hosts whose clocks differ by a TTL may both believe they lead.

        That costs double work and nothing else, since every write is fenced by its attempt.
        """
        told = {
            "name": name,
            "holder": holder,
            "now": now,
            "expires_at": now + timedelta(seconds=ttl_s),
            "info": as_jsonb(info or {}),
        }
        return self._one(HOLD_LEASE, told) is not None

    def release(self, name: str, holder: str) -> None:
        with self._pool.statement() as connection:
            connection.execute(RELEASE_LEASE.encode(), {"name": name, "holder": holder})

    def told(self, name: str) -> Mapping[str, Any]:
        found = self._one(LEASE_INFO, {"name": name})
        return {} if found is None else found["info"]

    def all(self) -> list[LeaseState]:
        return [LeaseState(**row) for row in self._all(LEASES)]
