"""A host's call: who acts, and the board or person that they named."""

from __future__ import annotations

from kbslurm.api import identity
from kbslurm.api.context import Context
from kbslurm.api.hosting.hosting import Hosting
from kbslurm.errors import NoHost, NotFound
from kbslurm.store.views import Board, Person

HOSTS_FAILURES = (400, 401, 404)


def hosting(context: Context, sender: identity.Given) -> Hosting:
    """The host who calls, at work; NoHost if they aren't one."""
    by, person = identity.acting_host(context, sender)
    return at_work(context, by, person)


def creating(context: Context, sender: identity.Given) -> Hosting:
    """Whoever may create a board: every host, and creators by a Discord role."""
    by, person = identity.creator(context, sender)
    return at_work(context, by, person)


def hosting_in_person(context: Context, sender: identity.Given, what: str) -> Hosting:
    """As `hosting`, but never through the bot: a right that holds for one call must not become a lasting one, least of
    all someone else's."""
    if identity.is_bot(context, sender):
        identity.host(context, sender)
        raise NoHost(f"{what} over Discord", hint="Use kbslurm, or the API with your own token.")
    return hosting(context, sender)


def at_work(context: Context, by: str, person: Person | None) -> Hosting:
    """This host at work, now."""
    return Hosting(
        store=context.store,
        config=context.config,
        by=by,
        person=person,
        creator=None if person is None else person.id,
        now=context.clock.now(),
    )


def held(context: Context, name: str) -> Board:
    """The board with that name, or NotFound."""
    found = context.store.boards.find(name)
    if found is None:
        raise NotFound("board", name, known=context.store.boards.names())
    return found
