"""`kbslurm history`: your own submissions, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import As, Json
from kbslurm.cli.competitor.connect import service
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK


def history(
    board: Annotated[str | None, typer.Argument(help="Only this board.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many to show.")] = 20,
    skip: Annotated[int, typer.Option(min=0, help="Skip the newest ones.")] = 0,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """List your submissions, newest first: time, file, outcome, and the scores that rank."""
    with service(as_) as found:
        lines = found.mine(board, limit=limit, offset=skip)
    if as_json:
        printing.as_json(list(lines))
        return EXIT_OK
    if not lines:
        printing.say(
            "no submissions" + (f" after the first {skip}" if skip else "; submit one with: kbslurm submit FILE")
        )
        return EXIT_OK
    rows = [
        (
            f"#{line['id']}",
            printing.escape(line["leaderboard_name"]),
            line["mode"],
            printing.escape(line["file_name"]),
            printing.when(datetime.fromisoformat(line["submission_time"])),
            _runs(line),
        )
        for line in lines
    ]
    printing.table(("number", "board", "mode", "file", "when", "outcome"), rows)
    if len(lines) == limit:
        printing.say(f"--skip {skip + limit} shows older ones")
    return EXIT_OK


def _runs(line: Mapping[str, Any]) -> str:
    found = []
    for run in line["runs"]:
        low, high = run["interval"] or (None, None)
        ranked = not run.get("not_ranked")  # only those have an interval that were to rank
        score = f" {printing.score(run['score'], low, high, ranked=ranked)}" if run["score"] is not None else ""
        unranked = "" if ranked else " (not ranked)"
        found.append(f"{run['gpu_type']} {printing.coloured(run['standing'])}{score}{unranked}")
    return ", ".join(found)
