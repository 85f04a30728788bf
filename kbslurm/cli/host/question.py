"""`kbslurm question list|show|answer|close|rejudge`: what people ask, and appeals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import Json, QuestionNumber, given_text
from kbslurm.cli.host.connect import host
from kbslurm.cli.host.rejudge import costs, told
from kbslurm.cli.output import printing
from kbslurm.cli.output.questions import about, first_line, print_question
from kbslurm.domain.questions import STATES, state_named
from kbslurm.errors import EXIT_OK, Invalid

PAGE = 100  # the most that the service returns at once


def list_(
    board: Annotated[str | None, typer.Option("--board", "-b", help="Only this board.")] = None,
    state: Annotated[str, typer.Option(help=f"Only these: {', '.join(STATES)} or all.")] = "open",
    limit: Annotated[int, typer.Option(min=1, max=PAGE, help="How many to show.")] = 50,
    skip: Annotated[int, typer.Option(min=0, help="Skip the first ones.")] = 0,
    as_json: Json = False,
) -> int:
    """List what people ask, open questions first."""
    wanted = state_named(state)
    with host() as hosts:
        found = hosts.questions(board, state=wanted, limit=limit, offset=skip)
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    rows = [
        (
            f"#{one['id']}",
            "appeal" if one["appeal"] else "question",
            printing.escape(about(one)),
            printing.escape(one["person"]),
            printing.when_told(one["asked_at"]),
            printing.escape(one["state"]),
            first_line(one["text"]),
        )
        for one in found["questions"]
    ]
    if rows:
        printing.table(("number", "kind", "about", "by", "when", "state", "text"), rows, wrap=6)
    else:
        printing.say("no question is open" if wanted == "open" else "no questions")
    if len(rows) == limit:
        printing.say(f"--skip {skip + limit} shows more")
    return EXIT_OK


def show_(number: QuestionNumber, as_json: Json = False) -> int:
    """Show a question, its answer, and what came of an appeal."""
    with host() as hosts:
        return _shown(hosts.question(number), as_json)


def answer(
    number: QuestionNumber,
    text: Annotated[str, typer.Argument(help="The answer; - reads it from standard input.")],
    to_all: Annotated[
        bool, typer.Option("--to-all", help="Announce it to everyone on the board, without the question.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Replace an answer that was given already.")] = False,
    as_json: Json = False,
) -> int:
    """Answer a question: its author alone, or everyone on the board as an announcement.

    An announcement contains neither the question nor who asked it, so let the answer stand for itself.
    """
    said = given_text(text, "answer")
    with host() as hosts:
        found = hosts.answer(number, said, to_all=to_all, again=again)
    whom = f"everyone on {found['leaderboard']}" if to_all else found["person"]
    return printing.answer(as_json, f"question #{number} is answered, to {whom}", **found)


def close(number: QuestionNumber, as_json: Json = False) -> int:
    """Close a question that needs no answer."""
    with host() as hosts:
        found = hosts.close_question(number)
    return printing.answer(as_json, f"question #{number} is closed", **found)


def rejudge(
    number: QuestionNumber,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Say what it would cost and how long it would take; order nothing.")
    ] = False,
    preview: Annotated[bool, typer.Option("--preview", help="Order it, or show how it stands.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Make the new verdicts count.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Discard the new verdicts.")] = False,
    as_json: Json = False,
) -> int:
    """Judge an appeal's submission again; the question notes what that changed.

    Nothing counts until --apply, and until then only hosts see it. Its author is told once they are answered, or when
    they look.
    """
    if estimate + preview + apply + cancel != 1:
        raise Invalid(
            "pass one of --estimate, --preview, --apply and --cancel", hint="--preview orders a rejudge or shows it."
        )
    with host() as hosts:
        if estimate:
            return costs(hosts.question_rejudge_estimate(number), as_json)
        if apply:
            found = hosts.question_rejudge_apply(number)
        elif cancel:
            found = hosts.question_rejudge_cancel(number)
        else:
            found = hosts.question_rejudge_preview(number)
    return told(found, as_json, command=f"kbslurm question rejudge {number}")


def _shown(found: Mapping[str, Any], as_json: bool) -> int:
    if as_json:
        printing.as_json(found)
    else:
        print_question(found)
    return EXIT_OK
