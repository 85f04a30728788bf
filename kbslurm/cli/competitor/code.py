"""`kbslurm code`: published code, and agreeing that one's own is."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.arguments import As, BoardName, Json
from kbslurm.cli.competitor.connect import service
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, Invalid


def code(
    name: BoardName,
    submission: Annotated[
        int | None, typer.Argument(metavar="[SUBMISSION]", help="Show the code of this published submission.")
    ] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", "-g", help="The GPU type (default: the board's first).")] = None,
    agree: Annotated[
        bool | None,
        typer.Option("--agree/--take-back", help="Agree that your code here is published, or take that back."),
    ] = None,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Show whose code a board publishes, read it, or agree that yours is."""
    if agree is not None and submission is not None:
        raise Invalid("a submission and --agree don't go together", hint="You agree for all of a board.")
    with service(as_) as found:
        if agree is not None:
            told = found.consent(name, consents=agree)
        elif submission is not None:
            told = found.code_of(name, gpu, submission)
        else:
            told = found.published_code(name, gpu)
    if as_json:
        printing.as_json(told)
    elif submission is not None:
        licence = f", licence: {told['licence']}" if told["licence"] else ""
        printing.note(f"#{told['submission']} of {told['person']} on {told['leaderboard']}{licence}")
        for file in told["files"]:
            if len(told["files"]) > 1:
                printing.note(file["name"])
            typer.echo(printing.harmless(file["text"]), nl=not file["text"].endswith("\n"))
    else:
        printing.say(printing.escape(told["in_words"]))
        printing.say("You agreed to it." if told["consents"] else "You didn't agree to it.")
        rows = [
            (str(row["rank"]), printing.escape(row["person"]), f"#{row['submission']}", printing.score(row["score_s"]))
            for row in told.get("published", ())
        ]
        if rows:
            printing.table(("rank", "who", "submission", "score"), rows, title=f"{told['leaderboard']} · {told['gpu']}")
    return EXIT_OK
