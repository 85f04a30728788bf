"""`kbslurm invite …`: who may see and enter private boards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK


def make(
    boards: Annotated[list[str], typer.Argument(help="The boards that each code gives access to.")],
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=10_000, help="How many codes to make.")] = 1,
    newcomers: Annotated[
        bool, typer.Option("--newcomers", help="Whoever has no account gets one by a code, without another sign-on.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Make invitation codes, one per line, each for one person: `kbslurm join CODE SERVICE`."""
    with host() as hosts:
        made = hosts.make_invites(boards, count, newcomers=newcomers)
    if as_json:
        printing.as_json({"boards": made["leaderboards"], "codes": made["codes"]})
    else:
        for code in made["codes"]:
            printing.say(code)
    return EXIT_OK


def list_(name: BoardName, as_json: Json = False) -> int:
    """List a board's invitations and who claimed them."""
    with host() as hosts:
        found = [_told(one) for one in hosts.invites(name)]
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    rows = [
        (
            one["code"],
            printing.escape(one["person"] or ""),
            printing.when_told(one["claimed_at"]),
            printing.when_told(one["created_at"]),
        )
        for one in found
    ]
    printing.table(("code", "person", "claimed", "made"), rows)
    return EXIT_OK


def revoke(code: Annotated[str, typer.Argument(help="The code.")], as_json: Json = False) -> int:
    """Revoke an invitation, and the access of the person who claimed it."""
    with host() as hosts:
        claimed = hosts.revoke_invite(code)["was_claimed"]
    if as_json:
        printing.as_json({"code": code, "was_claimed": claimed})
    else:
        printing.say(f"{code} is revoked" + ("; the person who had claimed it has lost access" if claimed else ""))
    return EXIT_OK


def _told(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "code": one["code"],
        "person_id": None if one["user_id"] is None else int(one["user_id"]),
        "person": one["user_name"],
        "claimed_at": one["claimed_at"],
        "created_at": one["created_at"],
    }
