"""`kbslurm usage`: GPU time used and its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain.amounts import counted
from kbslurm.domain.usage import By
from kbslurm.errors import EXIT_OK


def usage(
    month: Annotated[str, typer.Option(help="The month (UTC), like 2026-11 (default: this month).")] = "",
    by: Annotated[By, typer.Option(help="What to group by.")] = "board",
    board: Annotated[str | None, typer.Option(help="Only this board.")] = None,
    as_json: Json = False,
) -> int:
    """Show a month's GPU-seconds and cost by board, person, team, place or run; open runs count at their maximum."""
    with host() as hosts:
        told = hosts.usage(by=by, month=month or None, board=board)
    if as_json:
        printing.as_json(told)
        return EXIT_OK
    where = f" on board {told['board']}" if told["board"] else ""
    if not told["rows"]:
        printing.say(f"nothing ran in {told['month']}{where}")
        _say_warm(told.get("warm", ()))
        return EXIT_OK
    table = [
        (
            printing.escape("no team" if row["name"] is None else row["name"]),
            *(str(row[key]) for key in ("runs", "attempts", "open")),
            f"{row['gpu_s']:.0f}",
            f"{row['money']:.2f}{_of(row['budget'])}",
        )
        for row in told["rows"]
    ]
    printing.table((by, "runs", "attempts", "open", "GPU-seconds", printing.escape(told["currency"])), table)
    sums = f"{told['gpu_s']:.0f} GPU-seconds, {told['money']:.2f}{_of(told['budget'])} {told['currency']}"
    printing.say(f"{told['month']}{where}: {sums}")
    _say_warm(told.get("warm", ()))
    return EXIT_OK


def _say_warm(rows: Sequence[Mapping[str, Any]]) -> None:
    """What warm workers held: their runs are in the table, what they left idle isn't."""
    for row in rows:
        share = f" ({row['idle_s'] / row['held_s']:.0%})" if row["held_s"] else ""
        printing.say(
            f"{counted(row['workers'], 'warm worker')} at {row['place']}, {row['gpu']}: {row['held_s']:.0f} GPU-seconds"
            f" held, {row['used_s']:.0f} used by {counted(row['runs'], 'run')}, {row['idle_s']:.0f} idle{share}"
        )


def _of(bound: float | None) -> str:
    return "" if bound is None else f" of {bound:.2f}"
