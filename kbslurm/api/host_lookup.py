"""Look up the board or person that a host named."""

from __future__ import annotations

from kbslurm.api.context import Context
from kbslurm.domain import contest
from kbslurm.errors import NotFound
from kbslurm.store.views import Board, Person

HOSTS_FAILURES = (400, 401, 404)


def held(context: Context, name: str) -> Board:
    """The board with that name, or NotFound."""
    found = context.store.boards.find(name)
    if found is None:
        raise NotFound("board", name, known=context.store.boards.names())
    return found


def whom(context: Context, text: str) -> Person:
    """The person meant by person:ID, discord:ID, github:ID, one of our numbers, else an account, else a name."""
    provider, colon, account = text.partition(":")
    found: Person | None
    if colon and provider in ("discord", "github"):
        found = context.store.people.by_account(provider, account)
    elif colon and provider == "person":
        found = context.store.people.by_name_or_id(account)
    else:
        found = context.store.people.by_name_or_id(text) or context.store.people.by_account("discord", text)
    if found is None:
        names = [known.name for known in context.store.people.all()]
        raise NotFound("person", text, hint=contest.did_you_mean(text, names) or None)
    return found
