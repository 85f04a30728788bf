"""Hosts' calls about people: bans, accounts and their tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from kbslurm.api import identity, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, hosting
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Limit, Whom
from kbslurm.api.person_json import person_told
from kbslurm.contract.people import Banned, Link, NewPerson, People, PersonTold
from kbslurm.domain import contest
from kbslurm.errors import NoHost


def add_people(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post("/ban/{user_id}", responses=answers(Banned, *HOSTS_FAILURES, 403))
    def ban(user_id: Whom, sender: Sender, reason: Annotated[str, Query(max_length=200)] = "") -> Ascii:
        """Ban a person: reject their submissions, cancel what is open of them, and hide them from every board."""
        person = hosting(context, sender).ban(user_id, reason)
        return Ascii({"status": "ok", "user_id": str(person["id"]), "banned": True})

    @router.delete("/ban/{user_id}", responses=answers(Banned, *HOSTS_FAILURES, 403))
    def unban(user_id: Whom, sender: Sender) -> Ascii:
        """Lift a ban."""
        person = hosting(context, sender).unban(user_id)
        return Ascii({"status": "ok", "user_id": str(person["id"]), "banned": False})

    @router.post("/people", responses=answers(PersonTold, *HOSTS_FAILURES))
    def people(wanted: NewPerson, sender: Sender) -> Ascii:
        """The person with this account, created if needed: for the bot, whose users are authenticated."""
        by = identity.host(context, sender)
        account = contest.account_at(wanted.provider, wanted.account)
        person = context.store.people.for_account(wanted.provider, account, wanted.name, by=by, now=context.clock.now())
        return Ascii(person_told(person))

    @router.get("/people/{user_id}", responses=answers(PersonTold, *HOSTS_FAILURES))
    def person(user_id: Whom, sender: Sender) -> Ascii:
        """Look up a person."""
        return Ascii(person_told(hosting(context, sender).whom(user_id)))

    @router.post("/link", responses=answers(PersonTold, *HOSTS_FAILURES, 403))
    def link(wanted: Link, sender: Sender) -> Ascii:
        """Link a pending token to a person. Once; then it is theirs until it is revoked."""
        if identity.is_bot(context, sender):
            identity.host(context, sender)
            # A right that holds for one call must not become a permanent token, least of all someone else's.
            raise NoHost(
                "a token can't be linked for another person over Discord", hint="They have to use /link themselves."
            )
        host = hosting(context, sender)
        host.link_token(wanted.person, wanted.token)
        return Ascii(person_told(host.whom(wanted.person)))


def add_search(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.get("/people", responses=answers(People, 401))
    def people(sender: Sender, matching: Annotated[str, Query(max_length=64)] = "", limit: Limit = 25) -> Ascii:
        """Find people whose names contain this text."""
        identity.host(context, sender)
        return Ascii({"people": [person_told(one) for one in context.store.people.like(matching, limit=limit)]})
