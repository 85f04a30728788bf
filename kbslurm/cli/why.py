"""`kbslurm why`: why a run is where it is. `kbslurm usage`: what was used, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from kbslurm.cli import show
from kbslurm.cli.frame import Json, app, configuration, opened_store
from kbslurm.cli.service import service
from kbslurm.domain import placement
from kbslurm.errors import EXIT_OK


class By(StrEnum):
    """What usage is told by."""

    BOARD = "board"
    PERSON = "person"
    PLACE = "place"
    RUN = "run"


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
    by: Annotated[By, typer.Option(help="Told by what.")] = By.BOARD,
    as_json: Json = False,
) -> int:
    """GPU-seconds and money of a month, by board, person, place or run; what is open counts at its most."""
    now = datetime.now(UTC)
    begins, ends = placement.month_named(month) if month else placement.month_of(now)
    budget = configuration().policy.budget
    with opened_store() as store:
        rows = store.usage(by, begins, ends, now)
    money, gpu_s = sum(row.money for row in rows), sum(row.gpu_s for row in rows)
    if as_json:
        show.as_json(
            {
                "month": f"{begins:%Y-%m}",
                "by": by.value,
                "currency": budget.currency,
                "budget": budget.month,
                "gpu_s": gpu_s,
                "money": money,
                "rows": [show.plain(row) for row in rows],
            }
        )
        return EXIT_OK
    if not rows:
        show.say(f"nothing ran in {begins:%Y-%m}")
        return EXIT_OK
    table = [
        (show.escape(row.name), str(row.runs), str(row.attempts), str(row.open), f"{row.gpu_s:.0f}", f"{row.money:.2f}")
        for row in rows
    ]
    show.table((by.value, "runs", "attempts", "open", "GPU-seconds", budget.currency), table)
    of = "" if budget.month is None else f" of {budget.month:.2f}"
    show.say(f"{begins:%Y-%m}: {gpu_s:.0f} GPU-seconds, {money:.2f}{of} {budget.currency}")
    return EXIT_OK
