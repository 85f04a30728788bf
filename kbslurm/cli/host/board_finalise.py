"""`kbslurm board finalise`: finals, and then standings that only another act of a host changes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain import contest
from kbslurm.errors import Invalid


def board_finalise(
    name: BoardName,
    top: Annotated[
        int | None, typer.Option("--top", min=2, help="How many take part in each final (default: 5).")
    ] = None,
    finals: Annotated[
        bool, typer.Option("--finals/--without-finals", help="Measure the leaders head to head before.")
    ] = True,
    again: Annotated[bool, typer.Option("--again", help="Fix standings anew that are final already.")] = False,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Let the standings follow from the verdicts again.")
    ] = False,
    note: Annotated[str, typer.Option("--note", help="Why, for the audit log.")] = "",
    as_json: Json = False,
) -> int:
    """Make a board's standings final once it is over: run its finals, fix the result, announce it."""
    if withdraw and (again or top is not None or not finals):
        raise Invalid("--withdraw stands alone", hint="Leave the other options out, except --note.")
    with host() as hosts:
        if withdraw:
            told = hosts.unfinalise(name, note)
        else:
            told = hosts.finalise(name, top=top, finals=finals, again=again, note=note)
    return printing.answer(as_json, _in_words(told), **told)


def _in_words(told: Mapping[str, Any]) -> str:
    board = told["leaderboard"]
    match told["state"]:
        case "measuring":
            gpus = ", ".join(told["measuring"])
            return f"{board}: the final on {gpus} is being measured; the same command goes on once it has been"
        case "final":
            since = contest.at_home(datetime.fromisoformat(told["finalised_at"]), told["zone"])
            return f"{board}: the standings are final since {since}"
        case _:
            return f"{board}: the standings follow from the verdicts again"
