"""`kbslurm problem pull`: a board's problem in a directory of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.competitor.board_problem import board_problem
from kbslurm.cli.output import printing
from kbslurm.domain.amounts import counted
from kbslurm.errors import EXIT_OK


def problem_pull(
    board: BoardName,
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Where to (default: ./BOARD).", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also replace files that you have changed.")] = False,
    as_json: Json = False,
) -> int:
    """Get a board's problem into a directory, to work on it and try submissions at home.

    You get a template, the public cases, a README, and the reference if the board publishes it; never a hidden case or
    a seed. Pulling again brings the directory up to date and keeps what you have changed.
    """
    from kbslurm.trial import pulled_folder

    found, told = board_problem(board)
    folder = directory or Path(found.leaderboard)
    came = pulled_folder.write(folder, found, told, force=force)
    if as_json:
        facts = {"board": found.leaderboard, "directory": str(folder), "version": found.version}
        facts |= {"digest": found.digest, "gpus": found.gpus, "publishes_reference": found.publishes_reference}
        printing.as_json({**facts, "images": found.images, "written": came.written, "kept": came.kept})
        return EXIT_OK
    for name in came.kept:
        printing.caution(f"{folder / name} was changed here and stays as it is; --force replaces it")
    new = f"{counted(len(came.written), 'file')} written" if came.written else "nothing new"
    printing.say(f"{found.leaderboard} (version {found.version} of {found.problem.name}) is in {folder}: {new}")
    printing.say(f"GPU types: {', '.join(found.gpus)}")
    for gpu in found.gpus:
        for packages in found.packages(gpu):
            printing.say(f"runs on {gpu} have {packages}")
    entry = printing.path(folder / found.problem.entry)
    if found.publishes_reference:
        printing.say(f"kbslurm try {folder} judges {entry} on this machine")
    else:
        printing.say(
            f"the board doesn't publish its reference, so only the service can judge: kbslurm submit {entry} --board"
            f" {found.leaderboard} --mode test --watch"
        )
    return EXIT_OK
