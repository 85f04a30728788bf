"""Remove: a submission is taken off the lists. Open runs are cancelled; rows and events stay, its source is purged."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from kbslurm.domain.run import PersonId, SubmissionId
from kbslurm.flow.cancel import cancel
from kbslurm.ports import Store


class Removing(Store, Protocol):
    """What this room needs beside the walk's rows."""

    def take_back(self, submission: SubmissionId, by: str, now: datetime, person: PersonId | None = None) -> None: ...


def remove(store: Removing, submission: SubmissionId, person: PersonId | None, by: str, now: datetime) -> None:
    """Cancel and hide it. `person` None is the house itself; Refused for whoever neither owns it nor is staff.

    The two steps may be repeated: whoever dies between them leaves a cancelled submission that can be removed again.
    """
    cancel(store, submission, person, now)
    store.take_back(submission, by, now, person)
