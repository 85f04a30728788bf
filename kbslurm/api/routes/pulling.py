"""The call for a board's problem, to work on at home."""

from __future__ import annotations

from fastapi import APIRouter

from kbslurm.api import identity
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.door import Door
from kbslurm.api.identity import Sender
from kbslurm.api.lookup import seen_board
from kbslurm.api.parameters import Name
from kbslurm.api.pulled_problem import pulled_told
from kbslurm.contract.pulling import PulledProblem


def routes(context: Context) -> APIRouter:
    """The router of this call."""
    router = APIRouter(tags=["problems"], route_class=Door)

    @router.get("/leaderboards/{leaderboard}/problem", responses=answers(PulledProblem, 404))
    def pulled(leaderboard: Name, sender: Sender) -> Ascii:
        """A board's problem: templates, public cases, the files that submissions see; the reference if published."""
        board = seen_board(context, leaderboard, identity.maybe_caller(context, sender))
        return Ascii(pulled_told(context.store, context.config, board))

    return router
