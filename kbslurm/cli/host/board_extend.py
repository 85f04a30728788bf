"""`kbslurm board extend`: let one person submit after the deadline."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.host.connect import person as named
from kbslurm.cli.output.printing import answer
from kbslurm.domain import contest


def board_extend(
    name: BoardName,
    person: Annotated[str, typer.Argument(help="The person who gets the extension.")],
    until: Annotated[str, typer.Argument(help="The new deadline for them; `none` removes it.")],
    as_json: Json = False,
) -> int:
    """Let one person submit after the deadline."""
    with host() as hosts:
        told = hosts.extend(name, named(person), None if until == "none" else until)
    board, who, at = told["leaderboard"], told["person"], told["until"]
    shown = "until the board's own deadline"
    if at:
        shown = f"until {contest.at_home(datetime.fromisoformat(at), told['zone'])}"
    return answer(as_json, f"{who} may submit to {board} {shown}", board=board, person=who, until=at)
