"""`kbslurm why`: why a run is where it is. `kbslurm usage`: what was used, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from kbslurm.cli import show
from kbslurm.cli.frame import Json, app, configuration, opened_store
from kbslurm.cli.service import service
from kbslurm.domain import contest, placement
from kbslurm.domain import usage as domain
from kbslurm.domain.usage import By
from kbslurm.errors import EXIT_OK


@app.command()
def why(
    number: Annotated[int, typer.Argument(min=0, help="The run's number; with --submission a submission's.")],
    of_submission: Annotated[bool, typer.Option("--submission", "-s", help="Each run of this submission.")] = False,
    as_json: Json = False,
) -> int:
    """Why a run is where it is: what it waits for, or where it went and for which reason."""
    with service() as found:
        told = found.why(number, of_submission=of_submission)
    if as_json:
        show.as_json({"runs": [dict(one) for one in told]})
        return EXIT_OK
    for one in told:
        _shown(one)
    return EXIT_OK


def _shown(told: Mapping[str, Any]) -> None:
    out = show.out()
    head = f"run {told['run']}, submission {told['submission']}, {told['leaderboard']} on {told['gpu']}"
    out.print(f"[bold]{show.escape(head)}[/]: {show.coloured(told['state'])}", soft_wrap=True)
    for sentence in told["why"]:
        out.print(f"  {show.escape(sentence)}", soft_wrap=True)
    cost = sum(one["cost"] or 0.0 for one in told["attempts"])
    if cost:
        out.print(f"  it cost {cost:.4f} {show.escape(told['currency'])}".rstrip(), soft_wrap=True)


@app.command()
def usage(
    month: Annotated[str, typer.Option(help="Which month (UTC), like 2026-11; default: this one.")] = "",
    by: Annotated[By, typer.Option(help="Told by what.")] = "board",
    board: Annotated[str | None, typer.Option(help="Only this board's.")] = None,
    as_json: Json = False,
) -> int:
    """GPU-seconds and money of a month, by board, person, team, place or run; what is open counts at its most."""
    from kbslurm import wiring

    now = datetime.now(UTC)
    begins, ends = placement.month_named(month) if month else placement.month_of(now)
    named = None if board is None else contest.board_name(board)
    budget = wiring.budget(configuration())
    with opened_store() as store:
        told = domain.told(
            store.usage(by, begins, ends, now, board=named), begins=begins, by=by, board=named, budget=budget
        )
    if as_json:
        show.as_json(told)
        return EXIT_OK
    where = f" on board {named}" if named else ""
    if not told["rows"]:
        show.say(f"nothing ran in {told['month']}{where}")
        return EXIT_OK
    table = [
        (
            show.escape("no team" if row["name"] is None else row["name"]),
            *(str(row[key]) for key in ("runs", "attempts", "open")),
            f"{row['gpu_s']:.0f}",
            f"{row['money']:.2f}{_of(row['budget'])}",
        )
        for row in told["rows"]
    ]
    show.table((by, "runs", "attempts", "open", "GPU-seconds", show.escape(budget.currency)), table)
    sums = f"{told['gpu_s']:.0f} GPU-seconds, {told['money']:.2f}{_of(told['budget'])} {budget.currency}"
    show.say(f"{told['month']}{where}: {sums}")
    return EXIT_OK


def _of(bound: float | None) -> str:
    return "" if bound is None else f" of {bound:.2f}"
