"""Invitations of rosters: each signs its person in once."""

from __future__ import annotations

from kbslurm.api.context import Context
from kbslurm.api.identity import SECRET_CAP, check_not_banned
from kbslurm.errors import Unauthenticated
from kbslurm.store.views import Person

GONE = "this invitation is unknown, was used already, or has expired"
ASK = "Ask whoever runs the course for a new one."


def invited(context: Context, code: str) -> Person:
    """Whom it is for, without using it up; Unauthenticated or Banned."""
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
