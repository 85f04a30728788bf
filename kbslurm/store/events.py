"""The outbox: every event in order, and the audit log.

Kinds: submission.accepted, run.queued, run.launching, attempt.submitted, attempt.ambiguous, attempt.resent,
attempt.withdrawing, board.calibrated, run.running, run.scored, run.requeued, run.failed, run.cancel_asked,
run.cancelled, report.stale; and the hosts' actions as staff.* and board.*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from kbslurm.domain.run import EventId
from kbslurm.ports import Event
from kbslurm.store.connect import Pool
from kbslurm.store.listening import Listener
from kbslurm.store.rows import Rows, note_event, or_now, row_of

SETTLED = "SELECT kb_settled_event() AS settled"

EVENTS = """
SELECT id, kind, subject, data, at FROM event WHERE id > %(after)s AND id <= %(settled)s ORDER BY id LIMIT %(limit)s
"""


class Events(Rows):
    """ports.Events, and the audit log."""

    def __init__(self, pool: Pool, listener: Listener) -> None:
        super().__init__(pool)
        self._listener = listener

    def after(self, after: EventId, limit: int = 500) -> Sequence[Event]:
        """In order, without later gaps: an event is returned only once no lower ID can appear any more."""
        with self._pool.statement() as connection:
            settled = row_of(connection, SETTLED, {})
            assert settled is not None
            if settled["settled"] <= after:
                return []
            told = {"after": after, "settled": settled["settled"], "limit": limit}
            found = connection.execute(EVENTS.encode(), told).fetchall()
        return [
            Event(id=EventId(row["id"]), kind=row["kind"], subject=row["subject"], data=row["data"], at=row["at"])
            for row in found
        ]

    def last(self) -> EventId:
        """The newest event after which no lower number can appear."""
        found = self._one(SETTLED)
        assert found is not None
        return EventId(found["settled"])

    def wait(self, timeout_s: float) -> bool:
        return self._listener.wait(timeout_s)

    def audit(
        self, by: str, act: str, subject: str, data: Mapping[str, Any] | None = None, *, now: datetime | None = None
    ) -> None:
        """Record a host's action as the event `staff.<act>`."""
        with self._pool.transaction() as connection:
            note_event(connection, f"staff.{act}", subject, {**(data or {}), "by": by}, or_now(now))

    def audit_log(
        self, *, limit: int = 100, before: int | None = None, by: str | None = None, act: str | None = None
    ) -> list[Event]:
        """The audit log, newest first: all of it, or what somebody did, or one kind of act."""
        found = self._all(
            "SELECT id, kind, subject, data, at FROM event WHERE kind LIKE 'staff.%%'"
            " AND (%(before)s::bigint IS NULL OR id < %(before)s)"
            " AND (%(by)s::text IS NULL OR lower(data ->> 'by') = lower(%(by)s))"
            " AND (%(act)s::text IS NULL OR kind = 'staff.' || %(act)s) ORDER BY id DESC LIMIT %(limit)s",
            {"limit": limit, "before": before, "by": by, "act": act},
        )
        return [Event(**{**row, "id": EventId(row["id"])}) for row in found]
