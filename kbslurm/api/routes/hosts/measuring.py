"""Hosts' calls that order measurements: rejudges, finals, shadow runs. Nothing counts before it is applied."""

from __future__ import annotations

from fastapi import APIRouter

from kbslurm.api import waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, helping, hosting
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Name, Number
from kbslurm.contract.finals import FinalDecided, FinalWanted, HostsFinalTold
from kbslurm.contract.rejudging import RejudgeCost, RejudgeWanted, RejudgingTold
from kbslurm.contract.shadows import ShadowOrdered, Shadows, ShadowWanted


def add_rejudging(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post("/leaderboards/{leaderboard}/rejudge-preview", responses=answers(RejudgingTold, *HOSTS_FAILURES, 403))
    def preview(leaderboard: Name, wanted: RejudgeWanted, sender: Sender) -> Ascii:
        """The state of the board's open rejudge; if there is none, order one. Nothing counts until it is applied."""
        return Ascii(
            helping(context, sender, leaderboard, "run").rejudge_preview(
                leaderboard, wanted.filter or (), wanted.version
            )
        )

    @router.post("/leaderboards/{leaderboard}/rejudge-estimate", responses=answers(RejudgeCost, *HOSTS_FAILURES, 403))
    def estimate(leaderboard: Name, wanted: RejudgeWanted, sender: Sender) -> Ascii:
        """What a rejudge of these runs would cost and how long it would take. Orders nothing."""
        return Ascii(
            helping(context, sender, leaderboard, "run").rejudge_estimate(
                leaderboard, wanted.filter or (), wanted.version
            )
        )

    @router.post("/leaderboards/{leaderboard}/rejudge-apply", responses=answers(RejudgingTold, *HOSTS_FAILURES, 403))
    def apply(leaderboard: Name, sender: Sender) -> Ascii:
        """Make all new verdicts of the open rejudge count, and its version live."""
        return Ascii(helping(context, sender, leaderboard, "run").rejudge_apply(leaderboard))

    @router.post("/leaderboards/{leaderboard}/rejudge-cancel", responses=answers(RejudgingTold, *HOSTS_FAILURES, 403))
    def cancel(leaderboard: Name, sender: Sender) -> Ascii:
        """Discard the open rejudge: nothing changes."""
        return Ascii(helping(context, sender, leaderboard, "run").rejudge_cancel(leaderboard))


def add_finals(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post("/leaderboards/{leaderboard}/final", responses=answers(HostsFinalTold, *HOSTS_FAILURES, 403))
    def final(leaderboard: Name, wanted: FinalWanted, sender: Sender) -> Ascii:
        """The state of the board's open final; if there is none, order one. Nothing counts until it is applied."""
        return Ascii(helping(context, sender, leaderboard, "own").final(leaderboard, wanted.gpu, wanted.top))

    @router.post("/leaderboards/{leaderboard}/final-apply", responses=answers(HostsFinalTold, *HOSTS_FAILURES, 403))
    def apply(leaderboard: Name, wanted: FinalDecided, sender: Sender) -> Ascii:
        """Make the final's scores count for those who took part, all together."""
        return Ascii(helping(context, sender, leaderboard, "own").final_apply(leaderboard, wanted.gpu))

    @router.post("/leaderboards/{leaderboard}/final-forget", responses=answers(HostsFinalTold, *HOSTS_FAILURES, 403))
    def forget(leaderboard: Name, wanted: FinalDecided, sender: Sender) -> Ascii:
        """Discard the final; its job is killed if it is running."""
        return Ascii(helping(context, sender, leaderboard, "own").final_forget(leaderboard, wanted.gpu))


def add_shadows(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post("/submissions/{submission_id}/shadow", responses=answers(ShadowOrdered, *HOSTS_FAILURES))
    def shadow(submission_id: Number, wanted: ShadowWanted, sender: Sender) -> Ascii:
        """Measure a submission again at another place, or by itself instead of in a warm worker. It never ranks, and it
        may cost money."""
        return Ascii(hosting(context, sender).shadow(submission_id, wanted.place, cold=wanted.cold))

    @router.get("/leaderboards/{leaderboard}/shadows", responses=answers(Shadows, *HOSTS_FAILURES))
    def shadows(leaderboard: Name, sender: Sender) -> Ascii:
        """The board's times at other places against those at home, from shadow runs."""
        return Ascii(hosting(context, sender).shadows(leaderboard))
