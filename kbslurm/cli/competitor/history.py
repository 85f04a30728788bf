"""`kbslurm history`: one's own submissions, newest first."""

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
    board: Annotated[str | None, typer.Argument(help="One board only.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 20,
    skip: Annotated[int, typer.Option(min=0, help="Begin after so many.")] = 0,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Your own submissions, newest first: when, which file, how each ended, the scores that rank."""
    with service(as_) as found:
        lines = found.mine(board, limit=limit, offset=skip)
    if as_json:
        printing.as_json(list(lines))
        return EXIT_OK
    if not lines:
        printing.say("there are none" + (f" after the first {skip}" if skip else "; kbslurm submit FILE makes one"))
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
    printing.table(("number", "board", "mode", "file", "when", "how it ended"), rows)
    if len(lines) == limit:
        printing.say(f"--skip {skip + limit} shows older ones")
    return EXIT_OK


def _runs(line: Mapping[str, Any]) -> str:
    found = []
    for run in line["runs"]:
        low, high = run["interval"] or (None, None)
        score = f" {printing.score(run['score'], low, high)}" if run["score"] is not None else ""
        found.append(f"{run['gpu_type']} {printing.coloured(run['standing'])}{score}")
    return ", ".join(found)
