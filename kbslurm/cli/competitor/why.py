"""`kbslurm why`: explain a run's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.competitor.connect import service
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK


def why(
    number: Annotated[int, typer.Argument(min=0, help="The run's number, or a submission's with --submission.")],
    of_submission: Annotated[
        bool, typer.Option("--submission", "-s", help="Explain every run of this submission.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Explain a run's state: what it is waiting for, or where it ran and why."""
    with service() as found:
        told = found.why(number, of_submission=of_submission)
    if as_json:
        printing.as_json({"runs": [dict(one) for one in told]})
        return EXIT_OK
    for one in told:
        _shown(one)
    return EXIT_OK


def _shown(told: Mapping[str, Any]) -> None:
    out = printing.out()
    head = f"run {told['run']}, submission {told['submission']}, {told['leaderboard']} on {told['gpu']}"
    out.print(f"[bold]{printing.escape(head)}[/]: {printing.coloured(told['state'])}", soft_wrap=True)
    for sentence in told["why"]:
        out.print(f"  {printing.escape(sentence)}", soft_wrap=True)
    cost = sum(one["cost"] or 0.0 for one in told["attempts"])
    if cost:
        out.print(f"  it cost {cost:.4f} {printing.escape(told['currency'])}".rstrip(), soft_wrap=True)
