"""Hosts' calls about a board's times: late submissions, extensions, freezes, final standings, published code."""

from __future__ import annotations

from fastapi import APIRouter

from kbslurm.api import waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, helping
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Name
from kbslurm.contract.boards import Extended, Extension
from kbslurm.contract.finalising import Finalised, FinaliseWanted, UnfinaliseWanted
from kbslurm.contract.publishing import CodeRuleTold, CodeRuleWanted
from kbslurm.contract.times import BoardTimes, FreezeWanted, LateWanted


def add_times(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.get("/leaderboards/{leaderboard}/times", responses=answers(BoardTimes, *HOSTS_FAILURES, 403))
    def times(leaderboard: Name, sender: Sender) -> Ascii:
        """A board's deadline, late policy, extensions, and freeze."""
        return Ascii(helping(context, sender, leaderboard, "see").times(leaderboard))

    @router.post("/leaderboards/{leaderboard}/late", responses=answers(BoardTimes, *HOSTS_FAILURES, 403))
    def late(leaderboard: Name, wanted: LateWanted, sender: Sender) -> Ascii:
        """Say until when late submissions are accepted and what being late costs in grades."""
        given = wanted.model_dump(exclude_none=True)
        return Ascii(helping(context, sender, leaderboard, "run").set_late(leaderboard, **given))

    @router.post("/leaderboards/{leaderboard}/extend", responses=answers(Extended, *HOSTS_FAILURES, 403))
    def extend(leaderboard: Name, wanted: Extension, sender: Sender) -> Ascii:
        """Give one person or a section a later deadline."""
        return Ascii(helping(context, sender, leaderboard, "run").extend(leaderboard, wanted.person, wanted.until))

    @router.post("/leaderboards/{leaderboard}/freeze", responses=answers(BoardTimes, *HOSTS_FAILURES, 403))
    def freeze(leaderboard: Name, wanted: FreezeWanted, sender: Sender) -> Ascii:
        """Stop showing others what is submitted from now on, or from a later moment on."""
        return Ascii(helping(context, sender, leaderboard, "run").freeze(leaderboard, wanted.at))

    @router.post("/leaderboards/{leaderboard}/unfreeze", responses=answers(BoardTimes, *HOSTS_FAILURES, 403))
    def unfreeze(leaderboard: Name, sender: Sender) -> Ascii:
        """Show everything again."""
        return Ascii(helping(context, sender, leaderboard, "run").unfreeze(leaderboard))

    @router.get("/leaderboards/{leaderboard}/code", responses=answers(CodeRuleTold, *HOSTS_FAILURES, 403))
    def code(leaderboard: Name, sender: Sender) -> Ascii:
        """When a board's code is published, and under which licence."""
        return Ascii(helping(context, sender, leaderboard, "see").code_rule(leaderboard))

    @router.put("/leaderboards/{leaderboard}/code", responses=answers(CodeRuleTold, *HOSTS_FAILURES, 403))
    def set_code(leaderboard: Name, wanted: CodeRuleWanted, sender: Sender) -> Ascii:
        """Say when a board's code is published, and under which licence."""
        return Ascii(
            helping(context, sender, leaderboard, "own").set_code_rule(leaderboard, wanted.rule, wanted.licence)
        )

    @router.post("/leaderboards/{leaderboard}/finalise", responses=answers(Finalised, *HOSTS_FAILURES, 403))
    def finalise(leaderboard: Name, wanted: FinaliseWanted, sender: Sender) -> Ascii:
        """Run the finals of a board that is over and fix its standings. While finals are running, nothing is fixed:
        call it again."""
        given = wanted.model_dump(exclude_none=True)
        return Ascii(helping(context, sender, leaderboard, "own").finalise(leaderboard, **given))

    @router.post("/leaderboards/{leaderboard}/unfinalise", responses=answers(Finalised, *HOSTS_FAILURES, 403))
    def unfinalise(leaderboard: Name, wanted: UnfinaliseWanted, sender: Sender) -> Ascii:
        """Let a board's standings follow from the verdicts again."""
        return Ascii(helping(context, sender, leaderboard, "own").unfinalise(leaderboard, wanted.note or ""))
