"""`kbslurm submit`: a file becomes a submission, and with --watch one sees what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kbslurm.cli.arguments import As, Json, checked_mode, read_source
from kbslurm.cli.competitor.connect import service
from kbslurm.cli.output import printing


def submit(
    file: Annotated[Path, typer.Argument(help="The kernel: one .py, .cu, .cuh or .cpp file.")],
    board: Annotated[
        str | None, typer.Option("--leaderboard", "--board", "-l", help="Which board; a #!POPCORN line may say it.")
    ] = None,
    gpu: Annotated[list[str] | None, typer.Option("--gpu", "-g", help="Which GPU type; may be said again.")] = None,
    mode: Annotated[str, typer.Option("--mode", "-m", help="test, benchmark, profile or leaderboard.")] = "leaderboard",
    on: Annotated[str | None, typer.Option("--on", help="At which place; for a try, which waits for it.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Stay until its verdict.")] = False,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Submit a kernel. After the number is printed the submission will not be lost.

    With --watch the exit code tells the verdict: 0 passed, 3 rejected, 6 the infrastructure failed, 130 it
    was taken back.
    """
    asked = checked_mode(mode)
    source = read_source(file)
    with service(as_) as found:
        number, runs = found.submit(board, file.name, source, asked, gpu or [], on)
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
    printing.say(f"kbslurm watch {submission} shows what comes of it")
