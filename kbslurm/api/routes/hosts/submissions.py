"""Hosts' calls about anyone's submissions."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from kbslurm.api import identity, popcorn_submission, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, held
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Limit, Name, Number, Offset
from kbslurm.contract.submissions import HostsSubmissionTold, Removed, SubmissionIds
from kbslurm.domain.run import SubmissionId
from kbslurm.flow.cancel import cancel
from kbslurm.flow.remove import remove
from kbslurm.store.views import SubmissionView


def add_submissions(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.get("/submissions/{submission_id}", responses=answers(HostsSubmissionTold, 401, 404))
    def show(submission_id: Number, sender: Sender) -> Ascii:
        """A submission with what only hosts see: the logs, including the hidden cases'."""
        identity.host(context, sender)
        view = context.store.submissions.get(SubmissionId(submission_id))
        return Ascii({"status": "ok", "submission": hosts_submission(context, histories, view)})

    @router.delete("/submissions/{submission_id}", responses=answers(Removed, 401, 404))
    def delete(submission_id: Number, sender: Sender) -> Ascii:
        """Remove a submission from every list; its open runs are cancelled and its source is deleted."""
        by = identity.host(context, sender)
        number, now = SubmissionId(submission_id), context.clock.now()
        remove(context.store.submissions, number, None, by, now)
        context.store.events.audit(by, "remove_submission", f"submission:{number}", now=now)
        return Ascii({"status": "ok", "submission_id": number})

    @router.post("/submissions/{submission_id}/cancel", responses=answers(Removed, 401, 404))
    def cancel_(submission_id: Number, sender: Sender) -> Ascii:
        """Cancel the open runs of a submission; verdicts stay."""
        by = identity.host(context, sender)
        number, now = SubmissionId(submission_id), context.clock.now()
        cancel(context.store.submissions, number, None, now)
        context.store.events.audit(by, "cancel", f"submission:{number}", now=now)
        return Ascii({"status": "ok", "submission_id": number})

    @router.get("/leaderboards/{leaderboard}/submissions", responses=answers(SubmissionIds, *HOSTS_FAILURES))
    def of_board(leaderboard: Name, sender: Sender, limit: Limit = 100, offset: Offset = 0) -> Ascii:
        """The numbers of a board's submissions, newest first."""
        identity.host(context, sender)
        board = held(context, leaderboard)
        ids = context.store.submissions.ids(board.id, limit=limit, offset=offset)
        told = {"status": "ok", "leaderboard": board.name, "limit": limit, "offset": offset, "submission_ids": ids}
        return Ascii(told)


def hosts_submission(context: Context, histories: waiting.Histories, view: SubmissionView) -> dict[str, Any]:
    """Everything that its owner sees, plus the logs."""
    details = [(run.verdict.detail if run.verdict else None) or {} for run in view.runs]
    return {
        **popcorn_submission.submission(view, waiting.of_submission(context, histories, view)),
        "user_name": view.person,
        "removed_at": view.removed_at.isoformat() if view.removed_at else None,
        "log": "\n".join(str(one.get("log", "")) for one in details),
        "secret_log": "\n".join(str(one.get("secret_log", "")) for one in details),
    }
