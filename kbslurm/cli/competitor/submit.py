"""`kbslurm submit`: submit a file and, with --watch, follow it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kbslurm.cli.arguments import As, Entry, Json, checked_mode, read_source
from kbslurm.cli.competitor.connect import service
from kbslurm.cli.output import printing


def submit(
    file: Annotated[Path, typer.Argument(help="The kernel: a .py, .cu, .cuh or .cpp file, a folder, or a zip.")],
    board: Annotated[
        str | None, typer.Option("--leaderboard", "--board", "-l", help="The board, unless a #!POPCORN line names it.")
    ] = None,
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", "-g", help="The GPU type; can be given several times.")
    ] = None,
    mode: Annotated[str, typer.Option("--mode", "-m", help="test, benchmark, profile or leaderboard.")] = "leaderboard",
    entry: Entry = None,
    on: Annotated[str | None, typer.Option("--on", help="The place to run at; not in mode leaderboard.")] = None,
    benchmark: Annotated[
        int | None, typer.Option("--benchmark", help="Profile only this benchmark, from 0; with --mode profile.", min=0)
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Wait for the verdict.")] = False,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Submit a kernel. Once its number is printed, the submission can't be lost.

    With --watch the exit code gives the verdict: 0 passed, 3 rejected, 6 infrastructure failure, 130 cancelled.
    """
    asked = checked_mode(mode)
    name, source = read_source(file, entry)
    with service(as_) as found:
        number, runs = found.submit(board, name, source, asked, gpu or [], on, benchmark)
        if not watch:
            _told(number, runs, as_json)
            return 0
        if not as_json:
            printing.say(f"submission #{number} accepted")
        from kbslurm.cli.competitor.watch import followed

        return followed(found, number, as_json=as_json)


def _told(submission: int, runs: int, as_json: bool) -> None:
    if as_json:
        printing.as_json({"submission": submission, "runs": runs})
        return
    printing.say(f"submission #{submission} accepted, {runs} run{'s' if runs != 1 else ''}")
    printing.say(f"kbslurm watch {submission} follows it")
