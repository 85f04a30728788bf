"""Hosts' calls about anyone's submissions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from kbslurm.api import identity, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, check_helps, held, helping, helping_anywhere
from kbslurm.api.hosting.submissions import EVERYBODYS, Seen, hosts_submission
from kbslurm.api.identity import Given, Sender
from kbslurm.api.lookup import seen_board
from kbslurm.api.parameters import Limit, Name, Number, Offset, OfMode, OfVerdict, Since, in_utc
from kbslurm.contract.submissions import HostsSubmissions, HostsSubmissionTold, Removed, SubmissionIds
from kbslurm.domain import contest
from kbslurm.domain.access import BoardAct
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import NotFound
from kbslurm.flow.cancel import cancel
from kbslurm.flow.remove import remove
from kbslurm.store.views import SubmissionView


def add_submissions(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.get("/submissions", responses=answers(HostsSubmissions, *HOSTS_FAILURES, 403))
    def submissions(
        sender: Sender,
        leaderboard: Annotated[str | None, Query(max_length=contest.NAME_CAP, description="Only this board.")] = None,
        person: Annotated[str | None, Query(max_length=contest.WHOM_CAP, description="Only this person's.")] = None,
        verdict: OfVerdict = None,
        mode: OfMode = None,
        since: Since = None,
        limit: Limit = 50,
        offset: Offset = 0,
    ) -> Ascii:
        """Submissions at the boards that one may grade, and one's own, newest first."""
        host, boards = helping_anywhere(context, sender, "grade")
        seen = EVERYBODYS
        if boards is not None and host.person is not None:  # a helper is told of no other boards and people
            seen = Seen(boards=boards, person=host.person.id)
            leaderboard = None if leaderboard is None else seen_board(context, leaderboard, host.person).name
        rows = host.find_submissions(
            board=leaderboard, person=person, verdict=verdict, mode=mode, since=in_utc(since), limit=limit,
            offset=offset, seen=seen,
        )  # fmt: skip
        return Ascii({"submissions": rows})

    @router.get("/submissions/{submission_id}", responses=answers(HostsSubmissionTold, 401, 403, 404))
    def show(submission_id: Number, sender: Sender) -> Ascii:
        """A submission with what only hosts see: the logs, including the hidden cases'."""
        view = handled(context, sender, submission_id, "grade")[1]
        return Ascii({"status": "ok", "submission": hosts_submission(context, histories, view)})

    @router.delete("/submissions/{submission_id}", responses=answers(Removed, 401, 403, 404))
    def delete(submission_id: Number, sender: Sender) -> Ascii:
        """Remove a submission from every list; its open runs are cancelled and its source is deleted."""
        by, view = handled(context, sender, submission_id, "own")
        number, now = view.id, context.clock.now()
        remove(context.store.submissions, number, None, by, now)
        context.store.events.audit(by, "remove_submission", f"submission:{number}", now=now)
        return Ascii({"status": "ok", "submission_id": number})

    @router.post("/submissions/{submission_id}/cancel", responses=answers(Removed, 401, 403, 404))
    def cancel_(submission_id: Number, sender: Sender) -> Ascii:
        """Cancel the open runs of a submission; verdicts stay."""
        by, view = handled(context, sender, submission_id, "run")
        number, now = view.id, context.clock.now()
        cancel(context.store.submissions, number, None, now)
        context.store.events.audit(by, "cancel", f"submission:{number}", now=now)
        return Ascii({"status": "ok", "submission_id": number})

    @router.get("/leaderboards/{leaderboard}/submissions", responses=answers(SubmissionIds, *HOSTS_FAILURES, 403))
    def of_board(leaderboard: Name, sender: Sender, limit: Limit = 100, offset: Offset = 0) -> Ascii:
        """The numbers of a board's submissions, newest first."""
        helping(context, sender, leaderboard, "grade")
        board = held(context, leaderboard)
        ids = context.store.submissions.ids(board.id, limit=limit, offset=offset)
        told = {"status": "ok", "leaderboard": board.name, "limit": limit, "offset": offset, "submission_ids": ids}
        return Ascii(told)


def handled(context: Context, sender: Given, number: int, act: BoardAct) -> tuple[str, SubmissionView]:
    """Who calls, and the submission, if they may do this with the submissions of its board. To others it isn't there
    or not alike."""
    by, person = identity.acting_helper(context, sender)
    try:
        view = context.store.submissions.get(SubmissionId(number))
    except NotFound:
        identity.host(context, sender)
        raise
    if person is not None and not identity.is_host(context, sender, person):
        check_helps(context, person, view.board, act, number=view.board_id)
    return by, view
