"""`kbslurm usage`: GPU time used and its cost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration, opened_store
from kbslurm.cli.output import printing
from kbslurm.domain import contest, placement
from kbslurm.domain import usage as domain
from kbslurm.domain.usage import By
from kbslurm.errors import EXIT_OK


def usage(
    month: Annotated[str, typer.Option(help="The month (UTC), like 2026-11 (default: this month).")] = "",
    by: Annotated[By, typer.Option(help="What to group by.")] = "board",
    board: Annotated[str | None, typer.Option(help="Only this board.")] = None,
    as_json: Json = False,
) -> int:
    """Show a month's GPU-seconds and cost by board, person, team, place or run; open runs count at their maximum."""
    from kbslurm import wiring

    now = datetime.now(UTC)
    begins, ends = placement.month_named(month) if month else placement.month_of(now)
    named = None if board is None else contest.board_name(board)
    budget = wiring.budget(configuration())
    with opened_store() as store:
        told = domain.told(
            store.costs.usage(by, begins, ends, now, board=named), begins=begins, by=by, board=named, budget=budget
        )
    if as_json:
        printing.as_json(told)
        return EXIT_OK
    where = f" on board {named}" if named else ""
    if not told["rows"]:
        printing.say(f"nothing ran in {told['month']}{where}")
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
    printing.table((by, "runs", "attempts", "open", "GPU-seconds", printing.escape(budget.currency)), table)
    sums = f"{told['gpu_s']:.0f} GPU-seconds, {told['money']:.2f}{_of(told['budget'])} {budget.currency}"
    printing.say(f"{told['month']}{where}: {sums}")
    return EXIT_OK


def _of(bound: float | None) -> str:
    return "" if bound is None else f" of {bound:.2f}"
