"""The base of each part of the store: the connection pool, and the few ways to query.

Every statement that changes something is complete in itself: it writes the event along with the rows. Values are always
bound, as %(name)s; locks are always taken run before attempt. A host's action (`by`) is recorded as an event `staff.*`
in the same transaction; callers that leave out `by` record it with `events.audit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from kbslurm.domain.run import OpenAttempt
from kbslurm.errors import NotFound
from kbslurm.store import origin
from kbslurm.store.attempt_rows import fence
from kbslurm.store.connect import Connection, Pool

EVENT = "INSERT INTO event (kind, subject, data, at) VALUES (%(kind)s, %(subject)s, %(data)s, %(now)s)"


class Rows:
    """A part of the store. All parts share one pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def _one(self, statement: str, told: Mapping[str, Any] | None = None) -> DictRow | None:
        with self._pool.statement() as connection:
            return connection.execute(statement.encode(), told).fetchone()

    def _all(self, statement: str, told: Mapping[str, Any] | None = None) -> list[DictRow]:
        with self._pool.statement() as connection:
            return connection.execute(statement.encode(), told).fetchall()

    def _do(self, statement: str, told: Mapping[str, Any] | None = None) -> None:
        with self._pool.statement() as connection:
            connection.execute(statement.encode(), told)

    def _change(
        self,
        what: str,
        statement: str,
        told: Mapping[str, Any],
        act: tuple[str | None, str, str, Mapping[str, Any]],
        now: datetime | None,
        *,
        required: bool = True,
    ) -> bool:
        """A host's action on one row, recorded as an event if `by` is given. NotFound if the row doesn't exist."""
        by, name, subject, data = act
        with self._pool.transaction() as connection:
            if connection.execute(statement.encode(), told).fetchone() is None:
                if required:
                    raise NotFound(what, str(told["id"]))
                return False
            if by is not None:
                note_event(connection, f"staff.{name}", subject, {**data, "by": by}, or_now(now))
        return True

    def _fenced(self, statement: str, attempt: OpenAttempt, now: datetime, **told: Any) -> bool:
        """A fenced write to an attempt; False if the run has moved on and nothing was changed."""
        return self._one(statement, {**fence(attempt), "now": now, **told}) is not None


def note_event(connection: Connection, kind: str, subject: str, data: Mapping[str, Any], now: datetime) -> None:
    """Write an event in this transaction. Whatever a host does also says where it comes from."""
    if kind.startswith("staff."):
        data = {**data, **origin.as_data()}
    connection.execute(EVENT.encode(), {"kind": kind, "subject": subject, "data": Jsonb(dict(data)), "now": now})


def or_now(now: datetime | None) -> datetime:
    """The given time, or now."""
    return now or datetime.now(UTC)


def row_of(connection: Connection, statement: str, told: Mapping[str, Any]) -> DictRow | None:
    """The first row of a statement in this transaction."""
    return connection.execute(statement.encode(), told).fetchone()
