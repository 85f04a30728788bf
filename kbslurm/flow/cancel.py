"""Cancel a submission, by its owner or staff. Queued runs are cancelled now; running jobs are killed."""

from __future__ import annotations

from datetime import datetime

from kbslurm.domain.run import PersonId, SubmissionId
from kbslurm.observe.logs import teller
from kbslurm.ports import Submissions

tell = teller("cancel")


def cancel(store: Submissions, submission: SubmissionId, person: PersonId | None, now: datetime) -> int:
    """Cancel it; returns how many of its jobs still have to be killed. Safe to repeat; finished runs keep their result.

    `person` None is the service itself. Refused for anyone but the owner and staff. The daemon's sweep kills the jobs.
    """
    reached = store.cancel(submission, person, now)
    tell("cancel asked", submission=submission, by=person, open_attempts=len(reached))
    return len(reached)
