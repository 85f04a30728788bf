"""`kbslurm invite …`: who may see and enter private boards."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.context import opened_store, own_name
from kbslurm.cli.lookup import board_named
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK


def make(
    boards: Annotated[list[str], typer.Argument(help="The boards that each code gives access to.")],
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=10_000, help="How many codes to make.")] = 1,
    as_json: Json = False,
) -> int:
    """Make invitation codes, one per line, each for one person: `popcorn join CODE`."""
    with opened_store() as store:
        names = [board_named(store, name).name for name in boards]
        opened, codes = store.invites.make(names, count, by=own_name())
    if as_json:
        printing.as_json({"boards": opened, "codes": codes})
    else:
        for code in codes:
            printing.say(code)
    return EXIT_OK


def list_(name: BoardName, as_json: Json = False) -> int:
    """List a board's invitations and who claimed them."""
    with opened_store() as store:
        found = store.invites.of_board(board_named(store, name).name)
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    rows = [
        (one.code, printing.escape(one.person or ""), printing.when(one.claimed_at), printing.when(one.created_at))
        for one in found
    ]
    printing.table(("code", "person", "claimed", "made"), rows)
    return EXIT_OK


def revoke(code: Annotated[str, typer.Argument(help="The code.")], as_json: Json = False) -> int:
    """Revoke an invitation, and the access of the person who claimed it."""
    with opened_store() as store:
        claimed = store.invites.revoke(code, by=own_name())
    if as_json:
        printing.as_json({"code": code, "was_claimed": claimed})
    else:
        printing.say(f"{code} is revoked" + ("; the person who had claimed it has lost access" if claimed else ""))
    return EXIT_OK
