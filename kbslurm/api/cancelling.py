"""Cancelling a submission by its author or by staff, whose act is in the audit log: over HTTP, and by the database."""

from __future__ import annotations

from datetime import datetime

from kbslurm.flow.cancel import cancel
from kbslurm.store.postgres import PostgresStore
from kbslurm.store.views import Person, SubmissionView


def cancel_as(store: PostgresStore, view: SubmissionView, person: Person, now: datetime) -> int:
    """Cancel it; returns how many of its jobs still have to be killed. Refused for anyone but its author and staff."""
    reached = cancel(store.submissions, view.id, person.id, now)
    if view.person_id != person.id:
        store.events.audit(person.name, "cancel", f"submission:{view.id}", now=now)
    return reached
