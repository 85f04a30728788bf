"""`kbslurm board extend`: let one person submit after the deadline."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.context import opened_store, own_name
from kbslurm.cli.lookup import board_named, person_named
from kbslurm.cli.output.printing import answer
from kbslurm.domain import contest


def board_extend(
    name: BoardName,
    person: Annotated[str, typer.Argument(help="The person who gets the extension.")],
    until: Annotated[str, typer.Argument(help="The new deadline for them; `none` removes it.")],
    as_json: Json = False,
) -> int:
    """Let one person submit after the deadline."""
    with opened_store() as store:
        board, who = board_named(store, name), person_named(store, person)
        now = datetime.now(UTC)
        at = None if until == "none" else contest.coming_deadline(until, board.zone, now, what="extension")
        store.limits.extend(board.name, who, at, by=own_name())
    shown = "until the board's own deadline"
    if at:
        shown = f"until {contest.at_home(at, board.zone)}"
    return answer(
        as_json, f"{who.name} may submit to {board.name} {shown}", board=board.name, person=who.name, until=at
    )
