"""`kbslurm ask`: a question to the hosts, or an appeal; and one's own questions with their answers."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.arguments import As, Json, given_text, submission_number
from kbslurm.cli.competitor.connect import service
from kbslurm.cli.output import printing
from kbslurm.cli.output.questions import print_question
from kbslurm.errors import EXIT_OK, Invalid


def ask(
    text: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", help="The question; - reads it from standard input.", show_default=False),
    ] = None,
    board: Annotated[str | None, typer.Option("--board", "-b", help="The board that it is about.")] = None,
    submission: Annotated[
        int | None,
        typer.Option("--submission", "-s", help="The submission of yours that it is about.", parser=submission_number),
    ] = None,
    appeal: Annotated[bool, typer.Option("--appeal", help="Ask for the submission to be judged again.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Without a text: how many to show.")] = 20,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Ask the hosts something, at a board or at one of your submissions; without a text, show the answers.

    Only hosts see who asked. They answer you alone, or everyone on the board without naming you.
    """
    if text is None and (board is not None or submission is not None or appeal):
        raise Invalid("the question is missing", hint='Write it in quotes: kbslurm ask "…" --board NAME.')
    if text is not None and board is None and submission is None:
        raise Invalid("it isn't clear what the question is about", hint="Pass --board NAME or --submission NUMBER.")
    said = None if text is None else given_text(text, "question")
    with service(as_) as found:
        if said is not None:
            asked = found.ask(said, board=board, submission=submission, appeal=appeal)
            number = asked["id"]
            what = "appeal" if asked["appeal"] else "question"
            return printing.answer(as_json, f"{what} #{number} is sent; kbslurm ask shows the answer", **asked)
        known = found.asked(limit=limit)
    if as_json:
        printing.as_json({"questions": list(known)})
        return EXIT_OK
    for one in known:
        print_question(one)
    if not known:
        printing.say('you have asked nothing yet; kbslurm ask "…" --board NAME does')
    return EXIT_OK
