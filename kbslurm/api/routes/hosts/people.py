"""Hosts' calls about people: bans, accounts and their tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from kbslurm.api import identity, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, whom
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Limit
from kbslurm.api.person_json import person_told
from kbslurm.contract.people import Banned, Link, NewPerson, People, PersonTold
from kbslurm.domain import access
from kbslurm.errors import Invalid, NoHost

Whom = Annotated[str, Path(max_length=100, description="A person's number, name, or discord:ID, github:ID.")]


def add_people(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post("/ban/{user_id}", responses=answers(Banned, *HOSTS_FAILURES, 403))
    def ban(user_id: Whom, sender: Sender, reason: Annotated[str, Query(max_length=200)] = "") -> Ascii:
        """Ban a person: reject their submissions and hide them from every board."""
        (by, host), person = identity.acting_host(context, sender), whom(context, user_id)
        access.check_may_ban(host, person)
        context.store.people.ban(person.id, reason, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "user_id": str(person.id), "banned": True})

    @router.delete("/ban/{user_id}", responses=answers(Banned, *HOSTS_FAILURES, 403))
    def unban(user_id: Whom, sender: Sender) -> Ascii:
        """Lift a ban."""
        (by, host), person = identity.acting_host(context, sender), whom(context, user_id)
        access.check_may_ban(host, person)
        context.store.people.unban(person.id, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "user_id": str(person.id), "banned": False})

    @router.post("/people", responses=answers(PersonTold, *HOSTS_FAILURES))
    def people(wanted: NewPerson, sender: Sender) -> Ascii:
        """The person with this account, created if needed: for the bot, whose users are authenticated."""
        by = identity.host(context, sender)
        person = context.store.people.for_account(
            wanted.provider, wanted.account, wanted.name, by=by, now=context.clock.now()
        )
        return Ascii(person_told(person))

    @router.get("/people/{user_id}", responses=answers(PersonTold, *HOSTS_FAILURES))
    def person(user_id: Whom, sender: Sender) -> Ascii:
        """Look up a person."""
        identity.host(context, sender)
        return Ascii(person_told(whom(context, user_id)))

    @router.post("/link", responses=answers(PersonTold, *HOSTS_FAILURES))
    def link(wanted: Link, sender: Sender) -> Ascii:
        """Link a pending token to a person. Once; then it is theirs until it is revoked."""
        by = identity.host(context, sender)
        if identity.is_bot(context, sender):
            # A right that holds for one call must not become a permanent token, least of all someone else's.
            raise NoHost(
                "a token can't be linked for another person over Discord", hint="They have to use /link themselves."
            )
        person = whom(context, wanted.person)
        now = context.clock.now()
        if not context.store.tokens.claim(wanted.token, person.id, now=now):
            raise Invalid("this token isn't waiting to be linked", hint="Get a new one: popcorn reregister discord")
        context.store.events.audit(by, "link", f"person:{person.id}", now=now)
        return Ascii(person_told(person))


def add_search(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.get("/people", responses=answers(People, 401))
    def people(sender: Sender, matching: Annotated[str, Query(max_length=64)] = "", limit: Limit = 25) -> Ascii:
        """Find people whose names contain this text."""
        identity.host(context, sender)
        return Ascii({"people": [person_told(one) for one in context.store.people.like(matching, limit=limit)]})
