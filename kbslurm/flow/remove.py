"""Remove a submission from the lists. Open runs are cancelled; its data and events stay, its source is deleted."""

from __future__ import annotations

from datetime import datetime

from kbslurm.domain.run import PersonId, SubmissionId
from kbslurm.flow.cancel import cancel
from kbslurm.ports import Submissions


def remove(store: Submissions, submission: SubmissionId, person: PersonId | None, by: str, now: datetime) -> None:
    """Cancel and hide it. `person` None is the service itself; Refused for anyone but the owner and staff.

    Both steps are safe to repeat: dying between them leaves a cancelled submission that can be removed again.
    """
    cancel(store, submission, person, now)
    store.take_back(submission, by, now, person)
