"""A host's call: who acts, and the board or person that they named."""

from __future__ import annotations

from kbslurm.api import identity
from kbslurm.api.context import Context
from kbslurm.api.hosting.hosting import Hosting
from kbslurm.domain import access
from kbslurm.domain.access import BoardAct
from kbslurm.errors import NoHost, NotFound
from kbslurm.store.views import Board, Person

HOSTS_FAILURES = (400, 401, 404)


def hosting(context: Context, sender: identity.Given) -> Hosting:
    """The host who calls, at work; NoHost if they aren't one."""
    by, person = identity.acting_host(context, sender)
    return at_work(context, by, person)


def helping(context: Context, sender: identity.Given, board: str, act: BoardAct) -> Hosting:
    """The host who calls, or whoever may do this on that board by a role there, at work. Of a board that they may not
    see, others learn nothing."""
    by, person = identity.acting_helper(context, sender)
    helps = person is not None and not identity.is_host(context, sender, person)
    if person is not None and helps:
        check_helps(context, person, board, act)
    return at_work(context, by, person, helper=helps)


def helping_anywhere(context: Context, sender: identity.Given, act: BoardAct) -> tuple[Hosting, frozenset[int] | None]:
    """The host who calls, or whoever may do this on some boards by a role there, at work; and on which boards. None:
    on all."""
    by, person = identity.acting_helper(context, sender)
    if person is None or identity.is_host(context, sender, person):
        return at_work(context, by, person), None
    roles = context.store.roster.roles_of(person.id)
    mine = frozenset(board for board, role in roles.items() if access.may_on_board(person, role, act))
    return at_work(context, by, person, helper=True), mine


def helping_on_course(context: Context, sender: identity.Given, course: str, act: BoardAct) -> Hosting:
    """The same for a course: by a role on all of its boards."""
    by, person = identity.acting_helper(context, sender)
    helps = person is not None and not identity.is_host(context, sender, person)
    if person is not None and helps:
        role = context.store.roster.role_in(course.strip().lower(), person.id)
        if role is None:
            raise NoHost("this bearer token doesn't belong to a host")
        access.check_may_on_board(person, role, act, course)
    return at_work(context, by, person, helper=helps)


def check_helps(context: Context, person: Person, board: str, act: BoardAct, *, number: int | None = None) -> None:
    """NoHost, or Refused with the role that it needs, if this person has no right to do this on that board. `number`:
    which board of that name is meant, since one that was deleted may have had it before."""
    found = context.store.boards.find(board, counted=False)
    if found is not None and number not in (None, found.id):
        found = None
    role = None if found is None else context.store.roster.role_on(found.id, person.id)
    if found is None or role is None:
        raise NoHost("this bearer token doesn't belong to a host")
    access.check_may_on_board(person, role, act, found.name)


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


def at_work(context: Context, by: str, person: Person | None, *, helper: bool = False) -> Hosting:
    """This host at work, now; or whoever helps where they act, without being one."""
    return Hosting(
        store=context.store,
        config=context.config,
        by=by,
        person=person,
        creator=None if person is None else person.id,
        now=context.clock.now(),
        helper=helper,
    )


def held(context: Context, name: str) -> Board:
    """The board with that name, or NotFound."""
    found = context.store.boards.find(name)
    if found is None:
        raise NotFound("board", name, known=context.store.boards.names())
    return found
