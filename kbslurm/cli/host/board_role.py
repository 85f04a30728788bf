"""`kbslurm board role`: who helps on a board without being staff."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host, person
from kbslurm.cli.output import printing
from kbslurm.domain.access import BOARD_ROLES
from kbslurm.errors import EXIT_OK, Invalid

if TYPE_CHECKING:
    from kbslurm.domain.access import BoardRole


def board_role(
    name: BoardName,
    whom: Annotated[
        str | None, typer.Argument(metavar="[PERSON]", help="Whom; leave it out to see who has a role.")
    ] = None,
    role: Annotated[
        str | None, typer.Argument(metavar="[ROLE]", help="owner, assistant, grader, observer, or none.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Show who helps on a board, or give somebody a role there: owner, assistant, grader, observer or none."""
    if (whom is None) != (role is None):
        raise Invalid("a person and a role belong together", hint="Write kbslurm board role BOARD PERSON grader.")
    wanted = None if role is None else _role(role)
    with host() as hosts:
        if whom is not None:
            given = hosts.set_board_role(name, person(whom), wanted)
            if as_json:
                printing.as_json({key: given[key] for key in ("leaderboard", "person", "role")})
            else:
                is_now = f"is {given['role']}" if given["role"] else "has no role"
                printing.say(f"{printing.escape(given['person'])} {is_now} on {given['leaderboard']}")
            return EXIT_OK
        found = hosts.board_roles(name)
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    printing.table(
        ("person", "role", "by"), [(printing.escape(one["person"]), one["role"], one["by"]) for one in found["roles"]]
    )
    return EXIT_OK


def _role(text: str) -> BoardRole | None:
    wanted = text.strip().lower()
    for known in BOARD_ROLES:
        if wanted == known:
            return known
    if wanted == "none":
        return None
    raise Invalid(f"{text!r} isn't a role on a board", hint=f"Choose {', '.join(BOARD_ROLES)} or none.")
