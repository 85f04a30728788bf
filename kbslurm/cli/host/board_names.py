"""`kbslurm board names`: as whom others see the people on a board."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain import places
from kbslurm.errors import EXIT_OK, Invalid


def board_names(
    name: BoardName,
    format_: Annotated[str, typer.Option("--format", help="table or csv.")] = "table",
    of: Annotated[
        str | None, typer.Option("--of", help="Only this person, team, nickname or pseudonym, whichever it is.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Show who is who on a board with nicknames or pseudonyms, in both directions: don't hand it on."""
    if format_ not in ("table", "csv"):
        raise Invalid(f"{format_[:40]!r} isn't a format of this list", hint="Choose table or csv.")
    with host() as hosts:
        rows = hosts.shown_names(name)
    if of is not None:
        rows = [row for row in rows if of.lower() in {str(row[key]).lower() for key in ("shown_as", "person", "team")}]
    if as_json:
        printing.as_json({"board": name, "names": list(rows)})
    elif format_ == "csv":
        sys.stdout.write(places.names_as_csv(rows))
    elif rows:
        cells = [[printing.escape(str(row[key] or "")) for key in ("shown_as", "person", "team")] for row in rows]
        printing.table(("shown as", "person", "team"), cells, title=f"{name}: don't hand this on")
    else:
        printing.say(f"{name}: nobody {'of that name ' if of is not None else ''}has submitted yet")
    return EXIT_OK
