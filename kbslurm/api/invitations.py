"""Invitations. One of a roster signs its person in once; one to boards lets one person in, known or new."""

from __future__ import annotations

from kbslurm.api.context import Context
from kbslurm.api.identity import SECRET_CAP, check_not_banned
from kbslurm.domain.run import PersonId
from kbslurm.errors import Invalid, NotFound, Unauthenticated
from kbslurm.store.views import Person

# The same for every code that isn't good, so that guessing finds out nothing.
GONE = "this invitation is unknown, was used already or revoked, or has expired"
ASK = "If you have an account, sign in first (kbslurm login); else ask whoever runs it for a new one."


def invited(context: Context, code: str) -> Person:
    """Whom a roster's invitation is for, without using it up; Unauthenticated or Banned."""
    found = context.store.tokens.invited(code[:SECRET_CAP], now=context.clock.now())
    if found is None:
        raise Unauthenticated(GONE, hint=ASK)
    return check_not_banned(found)


def taken_invitation(context: Context, code: str) -> Person:
    """The same, and it is used up."""
    invited(context, code)
    person = context.store.tokens.accept_invitation(code[:SECRET_CAP], now=context.clock.now())
    if person is None:  # somebody else, or their other window, was quicker
        raise Unauthenticated(GONE, hint=ASK)
    return context.store.people.get(person)


def entered(context: Context, code: str, name: str | None) -> Person:
    """Who enters by this invitation: a roster's person, or by an invitation to boards somebody new of this name, who
    has claimed it then."""
    if not context.store.invites.is_for_newcomers(code):
        return taken_invitation(context, code)
    if name is None:
        raise Invalid("this invitation is for somebody new, who needs a name", hint="Run: kbslurm join CODE --name …")
    found = context.store.invites.newcomer(code, name, now=context.clock.now())
    if found is None:  # somebody else was quicker
        raise Unauthenticated(GONE, hint=ASK)
    return context.store.people.get(found)


def joined(context: Context, code: str, person: Person) -> tuple[list[str], bool]:
    """The boards that this invitation opens to this person, and whether it had done so before."""
    try:
        return context.store.invites.claim(code, person.id, now=context.clock.now())
    except NotFound:
        if not context.store.tokens.was_invited(code[:SECRET_CAP], person.id):
            raise
        return boards_by_invitation(context, person.id), True


def boards_by_invitation(context: Context, person: PersonId) -> list[str]:
    """The boards that a person sees by an invitation, a roster or a role, by name."""
    mine = context.store.invites.boards_of(person)
    return sorted(board.name for board in context.store.boards.all(counted=False) if board.id in mine)
