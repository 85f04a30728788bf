"""Calls about published code: whose there is, reading it, and agreeing to it."""

from __future__ import annotations

from fastapi import APIRouter

from kbslurm.api import identity, published_code
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.door import Door
from kbslurm.api.identity import Sender
from kbslurm.api.lookup import seen_board
from kbslurm.api.parameters import Gpu, Name, Number
from kbslurm.contract.publishing import CodeRuleTold, CodeTold, ConsentWanted, PublishedCode


def routes(context: Context) -> APIRouter:
    """The router of these calls."""
    router = APIRouter(tags=["code"], route_class=Door)

    @router.get("/code/{leaderboard}/{gpu}", responses=answers(PublishedCode, 404))
    def listed(leaderboard: Name, gpu: Gpu, sender: Sender) -> Ascii:
        """When a board's code is published, and whose is."""
        person = identity.maybe_caller(context, sender)
        board = seen_board(context, leaderboard, person)
        known = None if person is None else person.id
        return Ascii(published_code.list_told(context.store, board, gpu, known, context.clock.now()))

    @router.get("/code/{leaderboard}/{gpu}/{submission_id}", responses=answers(CodeTold, 404))
    def code(leaderboard: Name, gpu: Gpu, submission_id: Number, sender: Sender) -> Ascii:
        """The code of a published submission."""
        board = seen_board(context, leaderboard, identity.maybe_caller(context, sender))
        return Ascii(published_code.code_told(context.store, board, gpu, submission_id, context.clock.now()))

    @router.put("/user/consent/{leaderboard}", responses=answers(CodeRuleTold, 400, 401, 404))
    def consent(leaderboard: Name, wanted: ConsentWanted, sender: Sender) -> Ascii:
        """Agree that one's code on this board is published, or take that back."""
        person, now = identity.caller(context, sender), context.clock.now()
        board = seen_board(context, leaderboard, person)
        context.store.publishing.consent(board.id, person.id, is_given=wanted.consents, now=now)
        return Ascii(published_code.rule_told(context.store, board, person.id, now))

    return router
