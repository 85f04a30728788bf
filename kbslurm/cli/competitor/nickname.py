"""`kbslurm nickname`: as whom others see you on a board."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.acting import acting_person
from kbslurm.cli.arguments import As, BoardName, Json
from kbslurm.cli.competitor.connect import check_identified, reached
from kbslurm.cli.context import opened_store
from kbslurm.cli.lookup import board_named
from kbslurm.cli.output import printing
from kbslurm.cli.service_in_use import in_use
from kbslurm.errors import EXIT_OK, Invalid


def nickname(
    name: BoardName,
    wanted: Annotated[str | None, typer.Argument(metavar="[NICKNAME]", help="As whom others are to see you.")] = None,
    none: Annotated[bool, typer.Option("--none", help="Give up your nickname there.")] = False,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Choose as whom others see you on a board that has nicknames. Hosts see who is who."""
    if (wanted is None) != none:
        raise Invalid("a nickname is missing", hint="Write kbslurm nickname BOARD NICKNAME, or --none to give it up.")
    if (named := in_use()) is not None:
        check_identified(named, as_)
        with reached(named.url, named.token) as client:
            chosen = client.set_nickname(name, wanted)
    else:
        with opened_store() as store:
            chosen = store.nicknames.choose(board_named(store, name), acting_person(store, as_), wanted)
    if as_json:
        printing.as_json({"board": name, "nickname": chosen})
    elif chosen is None:
        printing.say(f"{name}: others see you by your own name")
    else:
        printing.say(f"{name}: others see you as {printing.escape(chosen)}")
    return EXIT_OK
