"""Hosts' calls about similar sources."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from kbslurm.api import waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, helping
from kbslurm.api.hosting.comparing import BOARDS_CAP
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Name, Number
from kbslurm.api.routes.hosts.submissions import handled
from kbslurm.contract.comparing import PairTold, SimilarTold
from kbslurm.domain import contest, similarity

OtherBoard = Annotated[str, Query(max_length=contest.NAME_CAP)]


def add_comparing(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.get("/leaderboards/{leaderboard}/similar", responses=answers(SimilarTold, *HOSTS_FAILURES, 403))
    def similar(
        leaderboard: Name,
        sender: Sender,
        section: Annotated[
            str | None, Query(max_length=100, description="Only pairs in which somebody of this section is.")
        ] = None,
        board: Annotated[
            list[OtherBoard] | None,
            Query(max_length=BOARDS_CAP, description="Another board to compare with. Can be repeated."),
        ] = None,
        at_least: Annotated[float, Query(description="In per cent of the smaller source, from 10 to 100.")] = 100
        * similarity.USUAL,
    ) -> Ascii:
        """Pairs of people with similar sources, to look at. Needs a grader's rights on every board that is named."""
        work = helping(context, sender, leaderboard, "grade")
        for name in board or ():
            helping(context, sender, name, "grade")
        return Ascii(work.similar(leaderboard, section=section, others=board or (), at_least=at_least))

    @router.get("/submissions/{submission_id}/similar/{other_id}", responses=answers(PairTold, *HOSTS_FAILURES, 403))
    def pair(submission_id: Number, other_id: Number, sender: Sender) -> Ascii:
        """Two submissions' sources, with the lines that they have in common."""
        for number in (submission_id, other_id):
            _, view = handled(context, sender, number, "grade")
        return Ascii(helping(context, sender, view.board, "grade").similar_pair(submission_id, other_id))
