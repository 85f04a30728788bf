"""Remove: a submission is taken off the lists. Open runs are cancelled; rows and events stay, its source is purged."""

from __future__ import annotations

from datetime import datetime

from kbslurm.domain.run import PersonId, SubmissionId
from kbslurm.flow.cancel import cancel
from kbslurm.ports import Submissions


def remove(store: Submissions, submission: SubmissionId, person: PersonId | None, by: str, now: datetime) -> None:
    """Cancel and hide it. `person` None is the house itself; Refused for whoever neither owns it nor is staff.

    The two steps may be repeated: whoever dies between them leaves a cancelled submission that can be removed again.
    """
    cancel(store, submission, person, now)
    store.take_back(submission, by, now, person)
