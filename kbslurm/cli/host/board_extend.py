"""`kbslurm board extend`: a later deadline for one person or one section."""

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
    person: Annotated[str, typer.Argument(help="The person who gets the extension, or section:NAME.")],
    until: Annotated[str, typer.Argument(help="The new deadline for them; `none` removes it.")],
    as_json: Json = False,
) -> int:
    """Give one person or section a later deadline. What they submit until then isn't late: it counts in the
    standings."""
    with host() as hosts:
        told = hosts.extend(name, _whom(person), None if until == "none" else until)
    board, who, at = told["leaderboard"], told["person"] or f"section {told['section']}", told["until"]
    shown = "until the board's own deadline"
    if at:
        shown = f"until {contest.at_home(datetime.fromisoformat(at), told['zone'])}"
    text = f"{who} may submit to {board} {shown}"
    return answer(as_json, text, board=board, person=told["person"], section=told["section"], until=at)


def _whom(text: str) -> str:
    return text if text.startswith("section:") else named(text)
