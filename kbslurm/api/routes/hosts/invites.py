"""Hosts' calls about invitations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from kbslurm.api import waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, helping, hosting
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Name
from kbslurm.contract.invites import InviteRevoked, Invites, InvitesMade, InvitesWanted

InviteCode = Annotated[str, Path(max_length=64)]


def add_invites(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post("/invites", responses=answers(InvitesMade, *HOSTS_FAILURES))
    def make(wanted: InvitesWanted, sender: Sender) -> Ascii:
        """Make invitations, each for one person and all of these boards; with `newcomers` also for somebody new."""
        made = hosting(context, sender).make_invites(wanted.leaderboards, wanted.count, newcomers=wanted.newcomers)
        return Ascii(made)

    @router.get("/leaderboards/{leaderboard}/invites", responses=answers(Invites, *HOSTS_FAILURES, 403))
    def of_board(leaderboard: Name, sender: Sender) -> Ascii:
        """A board's invitations and who claimed them."""
        return Ascii({"invites": helping(context, sender, leaderboard, "own").invites(leaderboard)})

    @router.delete("/invites/{code}", responses=answers(InviteRevoked, *HOSTS_FAILURES))
    def revoke(code: InviteCode, sender: Sender) -> Ascii:
        """Revoke an invitation, and the access of the person who claimed it."""
        return Ascii(hosting(context, sender).revoke_invite(code))
