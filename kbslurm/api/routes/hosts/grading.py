"""Hosts' call about grades."""

from __future__ import annotations

from fastapi import APIRouter

from kbslurm.api import waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, helping
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Name
from kbslurm.contract.grades import GradesTold, GradesWanted


def add_grading(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post("/leaderboards/{leaderboard}/grades", responses=answers(GradesTold, *HOSTS_FAILURES, 403))
    def grades(leaderboard: Name, wanted: GradesWanted, sender: Sender) -> Ascii:
        """A grade for everybody on the roster, by a scheme. Nothing is stored."""
        return Ascii(helping(context, sender, leaderboard, "grade").grades(leaderboard, wanted.scheme))
