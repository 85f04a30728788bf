"""Cancel: the owner or staff takes a submission back. Queued runs end at once; a running job is ended where it runs."""

from __future__ import annotations

from datetime import datetime

from kbslurm.domain.run import PersonId, SubmissionId
from kbslurm.observe.logs import teller
from kbslurm.ports import Submissions

tell = teller("cancel")


def cancel(store: Submissions, submission: SubmissionId, person: PersonId | None, now: datetime) -> int:
    """Take it back; how many jobs are still to be ended for it. Twice is fine; what has its end keeps it.

    `person` None is the house itself. Refused for anyone but the owner and staff. The daemon's sweep reaches the jobs.
    """
    reached = store.cancel(submission, person, now)
    tell("cancel asked", submission=submission, by=person, open_attempts=len(reached))
    return len(reached)
