"""The board or submission that a call names, if its caller may see it."""

from __future__ import annotations

from kbslurm.api import identity
from kbslurm.api.context import Context
from kbslurm.domain import access, contest
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import Invalid, NotFound, Refused
from kbslurm.store.views import Board, Person, SubmissionView


def own(context: Context, sender: identity.Given, number: int, *, staff_too: bool = False) -> SubmissionView:
    """The submission, if it is the caller's own and hasn't been removed."""
    person = identity.caller(context, sender)
    view = context.store.submissions.get(SubmissionId(number))
    may_see = access.may_see_reasons if staff_too else access.may_see_submission
    if may_see(person, view):
        return view
    if view.removed_at is not None:
        raise NotFound("submission", str(number))
    raise Refused(f"submission {number} isn't yours")


def seen_board(context: Context, name: str, person: Person | None) -> Board:
    """The board, or NotFound, which looks the same for a missing board and for one that the caller may not see."""
    known = context.store.boards.names(public_only=True)
    try:
        board = context.store.boards.find(contest.board_name(name), counted=False)
    except Invalid:
        board = None
    if board is None:
        raise NotFound("board", name, known=known)
    asks = person is not None and not access.is_for_everybody(board.visibility)
    mine = context.store.invites.boards_of(person.id) if person and asks else frozenset()
    if not may_see_board(board, person, mine):
        raise NotFound("board", name, known=known)
    return board


def may_see_board(board: Board, person: Person | None, joined: frozenset[int]) -> bool:
    """Whether the board may be shown to the caller."""
    staff = person is not None and person.is_staff
    return access.may_see_board(board.visibility, invited=board.id in joined, staff=staff)
