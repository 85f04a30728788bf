"""Hosts' calls about rejudging: what would change, before it counts."""

from __future__ import annotations

from fastapi import APIRouter

from kbslurm.api import identity, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, held, whom
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Name
from kbslurm.contract.rejudging import RejudgeWanted, RejudgingTold
from kbslurm.flow import rejudge
from kbslurm.store.rejudgings import Wanted


def add_rejudging(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post("/leaderboards/{leaderboard}/rejudge-preview", responses=answers(RejudgingTold, *HOSTS_FAILURES))
    def preview(leaderboard: Name, wanted: RejudgeWanted, sender: Sender) -> Ascii:
        """The state of the board's open rejudge; if there is none, order one. Nothing counts until it is applied."""
        by = identity.host(context, sender)
        board, chosen = held(context, leaderboard), rejudge.parsed(wanted.filter or [])
        found = context.store.rejudgings.preview(
            board.name,
            Wanted(
                submission=chosen.submission,
                gpu=chosen.gpu,
                verdict=chosen.verdict,
                mode=chosen.mode,
                person=whom(context, chosen.person).id if chosen.person else None,
            ),
            wanted.version,
            by=by,
            now=context.clock.now(),
        )
        return Ascii(found.told("preview"))
