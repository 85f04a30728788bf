"""Hosts' calls about invitations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from kbslurm.api import identity, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, held
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Name
from kbslurm.contract.invites import InviteRevoked, Invites, InvitesMade, InvitesWanted

InviteCode = Annotated[str, Path(max_length=64)]


def add_invites(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post("/invites", responses=answers(InvitesMade, *HOSTS_FAILURES))
    def make(wanted: InvitesWanted, sender: Sender) -> Ascii:
        """Make invitations, each for one person and all of these boards."""
        by = identity.host(context, sender)
        names = [held(context, name).name for name in wanted.leaderboards]
        boards, codes = context.store.invites.make(names, wanted.count, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "leaderboards": boards, "codes": codes})

    @router.get("/leaderboards/{leaderboard}/invites", responses=answers(Invites, *HOSTS_FAILURES))
    def of_board(leaderboard: Name, sender: Sender) -> Ascii:
        """A board's invitations and who claimed them."""
        identity.host(context, sender)
        found = context.store.invites.of_board(held(context, leaderboard).name)
        return Ascii(
            {
                "invites": [
                    {
                        "code": one.code,
                        "user_id": None if one.person_id is None else str(one.person_id),
                        "user_name": one.person,
                        "claimed_at": one.claimed_at.isoformat() if one.claimed_at else None,
                        "created_at": one.created_at.isoformat(),
                    }
                    for one in found
                ]
            }
        )

    @router.delete("/invites/{code}", responses=answers(InviteRevoked, *HOSTS_FAILURES))
    def revoke(code: InviteCode, sender: Sender) -> Ascii:
        """Revoke an invitation, and the access of the person who claimed it."""
        by = identity.host(context, sender)
        claimed = context.store.invites.revoke(code, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "code": code, "was_claimed": claimed})
