"""`kbslurm stats`: submissions, people, verdicts and GPU time."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK


def stats(
    board: Annotated[str | None, typer.Argument(help="Only this board (default: all).")] = None,
    last_day: Annotated[bool, typer.Option("--last-day", help="Only submissions of the last 24 hours.")] = False,
    as_json: Json = False,
) -> int:
    """Count submissions, people, verdicts and GPU time."""
    with host() as hosts:
        found = hosts.stats(board, last_day=last_day)
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    printing.say(f"{found['submissions']} submissions by {found['people']} people, {found['runs']} runs")
    printing.say(f"{found['queued']} queued, {found['running']} running, {found['failed']} failed")
    if found["verdicts"]:
        printing.say(", ".join(f"{count} {name}" for name, count in found["verdicts"].items()))
    rows = [(gpu, str(row["runs"]), f"{row['gpu_s']:.1f}") for gpu, row in found["gpus"].items()]
    if rows:
        printing.table(("GPU", "runs", "GPU-seconds"), rows)
    return EXIT_OK
