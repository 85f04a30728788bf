"""Calls for the Discord bot (or a host): identify a Discord user and their rights, link a token, follow a canary.

Its own token is valid for these and the event feed. For everything else it acts for a person, with that person's
rights.
"""

from __future__ import annotations

import shlex

from fastapi import APIRouter

from kbslurm.api import identity
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.door import Door
from kbslurm.api.identity import BOTS_PROVIDER, Sender
from kbslurm.api.parameters import Number
from kbslurm.api.person_json import person_told
from kbslurm.api.routes.hosts import verifying
from kbslurm.contract.base import Fine
from kbslurm.contract.people import DiscordUser, May, PendingToken, PersonTold
from kbslurm.contract.verifying import Verification
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import Invalid, NotFound, Refused


def routes(context: Context) -> APIRouter:
    """The router of these calls."""
    router = APIRouter(prefix="/bot", tags=["hosts"], route_class=Door)

    @router.post("/people", responses=answers(PersonTold, 400, 401))
    def people(wanted: DiscordUser, sender: Sender) -> Ascii:
        """The person with this Discord account, created if needed: Discord has authenticated them to the bot."""
        by = identity.service(context, sender)
        person = context.store.people.for_account(
            BOTS_PROVIDER, wanted.account, wanted.name, by=by, now=context.clock.now()
        )
        return Ascii(person_told(person))

    @router.post("/link", responses=answers(PersonTold, 400, 401, 403, 404))
    def link(wanted: PendingToken, sender: Sender) -> Ascii:
        """Link a pending token to the person that the call is for. Once; then it is theirs until it is revoked.

        Tokens of staff can't be linked here: one that was stolen from the bot would outlive it, and any host could take
        an owner's rights.
        """
        by = identity.service(context, sender)
        person, now = identity.caller(context, sender), context.clock.now()
        theirs = identity.asker(context, sender).person if identity.is_bot(context, sender) else person
        if theirs.is_staff:
            raise Refused(
                f"{person.name} is a host, and a host's token can't be linked over Discord",
                hint=f"Run on the login node: kbslurm user link {shlex.quote(person.name)} TOKEN",
            )
        if not context.store.tokens.claim(wanted.token, person.id, now=now):
            raise Invalid("this token isn't waiting to be linked", hint="Get a new one: popcorn reregister discord")
        context.store.events.audit(by, "link", f"person:{person.id}", now=now)
        return Ascii(person_told(person))

    @router.get("/may", responses=answers(May, 400, 401, 404))
    def may(sender: Sender) -> Ascii:
        """The rights that the person has beyond submitting, and with them the GPU types that places offer."""
        if not identity.is_bot(context, sender):
            identity.host(context, sender)
            right: identity.Right | None = "host"
        else:
            right = identity.asker(context, sender).right
        told = {"host": right == "host", "creator": right is not None}
        return Ascii({**told, "gpu_types": sorted(context.slots) if right else []})

    @router.post("/resync", responses=answers(Fine, 401, 404))
    def resync(sender: Sender) -> Ascii:
        """A host has the bot register its Discord commands again: checks the right and writes the audit log."""
        by = identity.host(context, sender)
        context.store.events.audit(by, "resync", "bot:commands", now=context.clock.now())
        return Ascii({"status": "ok"})

    @router.get("/verifications/{submission_id}", responses=answers(Verification, 401, 404))
    def verification(submission_id: Number, sender: Sender) -> Ascii:
        """The state of one of the service's canaries, and of those ordered with it at other places: no source, no log,
        and no one else's submission.
        """
        identity.service(context, sender)
        together = context.store.submissions.ordered_together(SubmissionId(submission_id), verifying.VERIFIES)
        if not together:
            raise NotFound("verification", str(submission_id))
        return Ascii(
            verifying.verification([(context.store.submissions.get(number), place) for number, place in together])
        )

    return router
