"""`kbslurm shadow`: the same submission at two places, and how their times differ."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json, submission_number
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, Invalid


def order(
    submission: Annotated[int, typer.Argument(help="A leaderboard submission with a score.", parser=submission_number)],
    on: Annotated[str | None, typer.Option("--on", help="The place, as named by kbslurm status.")] = None,
    cold: Annotated[
        bool, typer.Option("--cold", help="At the same place, as a job of its own instead of in a warm worker.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Measure a submission again at another place, regardless of the overflow rule. It never ranks, and it may cost
    money."""
    if (on is None) != cold:
        raise Invalid("where it is measured isn't clear", hint="Pass --on PLACE, or --cold.")
    with host() as hosts:
        told = hosts.shadow(submission, on, cold=cold)
    if as_json:
        printing.as_json(told)
        return EXIT_OK
    named = ", ".join(map(str, told["runs"]))
    where = "as a job of its own" if cold else f"at {on}"
    printing.say(f"ordered {where}: run {named}; kbslurm shadow report BOARD shows the result")
    return EXIT_OK


def report(name: BoardName, as_json: Json = False) -> int:
    """Compare the board's times at other places with those at home, based on shadow runs."""
    with host() as hosts:
        told = hosts.shadows(name)
    board, found = told["leaderboard"], told["places"]
    if as_json:
        printing.as_json(told)
        return EXIT_OK
    if not found:
        printing.say(
            f"no submission to {board} was measured elsewhere yet; order one: kbslurm shadow order NUMBER --on PLACE"
        )
        return EXIT_OK
    rows = []
    for row in found:
        said = row["drift"]
        ratio = "–" if said is None else f"{said['ratio']:.4f} ({said['low']:.4f} to {said['high']:.4f})"
        even = "within measurement error"
        word = "" if said is None else "slower" if said["low"] > 1 else "faster" if said["high"] < 1 else even
        pairs = "0" if said is None else str(said["pairs"])
        rows.append(
            (
                printing.escape(row["place"]),
                printing.escape(row["gpu"]),
                pairs,
                ratio,
                word,
                str(row["open"]),
                str(row["without_score"]),
            )
        )
    heads = ("place", "GPU", "pairs", "time there / time at home", "", "open", "without a score")
    printing.table(heads, rows, title=f"{board}: drift")
    return EXIT_OK
