"""`kbslurm invite …`: who may see and enter closed boards."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli import show
from kbslurm.cli.board import Name, board_of
from kbslurm.cli.frame import Json, app, asking, opened_store
from kbslurm.errors import EXIT_OK

group = typer.Typer(help="Invitations to closed boards: make, list, revoke.", no_args_is_help=True)
app.add_typer(group, name="invite")


@group.command()
def make(
    boards: Annotated[list[str], typer.Argument(help="The boards that each code opens.")],
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=10_000, help="How many codes.")] = 1,
    as_json: Json = False,
) -> int:
    """New codes, one a line, each for one person: `popcorn join CODE`."""
    with opened_store() as store:
        names = [board_of(store, name).name for name in boards]
        opened, codes = store.make_invites(names, count, by=asking())
    if as_json:
        show.as_json({"boards": opened, "codes": codes})
    else:
        for code in codes:
            show.say(code)
    return EXIT_OK


@group.command("list")
def list_(name: Name, as_json: Json = False) -> int:
    """The invitations to a board, and who took them up."""
    with opened_store() as store:
        found = store.invites(board_of(store, name).name)
    if as_json:
        show.as_json(found)
        return EXIT_OK
    rows = [
        (one.code, show.escape(one.person or ""), show.when(one.claimed_at), show.when(one.created_at)) for one in found
    ]
    show.table(("code", "person", "taken up", "made"), rows)
    return EXIT_OK


@group.command()
def revoke(code: Annotated[str, typer.Argument(help="The code.")], as_json: Json = False) -> int:
    """End an invitation, and the access of whoever took it up."""
    with opened_store() as store:
        claimed = store.revoke_invite(code, by=asking())
    if as_json:
        show.as_json({"code": code, "was_claimed": claimed})
    else:
        show.say(f"{code} is revoked" + ("; who had taken it up is out" if claimed else ""))
    return EXIT_OK
