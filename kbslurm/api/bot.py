"""What only the Discord bot (or a host) asks: who a Discord user is, and a token linked to one.

Its own token opens these and the event feed. Everything else it asks in somebody's name, and may as much as they may.
"""

from __future__ import annotations

from fastapi import APIRouter

from kbslurm.api import identity, shapes
from kbslurm.api.house import House
from kbslurm.api.identity import BOTS_PROVIDER, Sender
from kbslurm.api.popcorn import person_told
from kbslurm.api.shapes import Ascii, answers
from kbslurm.errors import Invalid


def routes(house: House) -> APIRouter:
    """The router of this house."""
    router = APIRouter(prefix="/bot", tags=["hosts"])

    @router.post("/people", responses=answers(shapes.PersonTold, 400, 401))
    def people(wanted: shapes.DiscordUser, sender: Sender) -> Ascii:
        """The person of this Discord account, made when there is none: Discord has proved to the bot who it is."""
        by = identity.service(house, sender)
        person = house.store.person_for_account(
            BOTS_PROVIDER, wanted.account, wanted.name, by=by, now=house.clock.now()
        )
        return Ascii(person_told(person))

    @router.post("/link", responses=answers(shapes.PersonTold, 400, 401, 404))
    def link(wanted: shapes.PendingToken, sender: Sender) -> Ascii:
        """Give a pending token to the person that the call is for. Once; then it is theirs until it is revoked."""
        by = identity.service(house, sender)
        person, now = identity.caller(house, sender), house.clock.now()
        if not house.store.claim_token(wanted.token, person.id, now=now):
            raise Invalid("this token isn't waiting to be linked", hint="Get another: popcorn reregister discord")
        house.store.audit(by, "link", f"person:{person.id}", now=now)
        return Ascii(person_told(person))

    return router
