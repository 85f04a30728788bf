"""`kbslurm diff`: what changed between two submissions, in code and results."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.api.comparison import Interval, Pair, change, check_one_board, pairs
from kbslurm.cli.arguments import As, Json, submission_number
from kbslurm.cli.competitor.connect import service
from kbslurm.cli.competitor.service import Service
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, Invalid, NotFound

if TYPE_CHECKING:
    from kbslurm.store.views import SubmissionView

LOOK_BACK = 1000


def diff(
    older: Annotated[
        int,
        typer.Argument(
            help="A submission's number; if alone, compared with the one before it.",
            parser=submission_number,
        ),
    ],
    newer: Annotated[
        int | None, typer.Argument(help="The other submission's number.", parser=submission_number)
    ] = None,
    code: Annotated[bool, typer.Option("--code/--no-code", help="Show the changed lines.")] = True,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Compare two of your submissions: changed lines, verdicts, scores, and each timed case.

    With one number, it is compared with your previous submission to the same board.
    """
    with service(as_) as found:
        if newer is None:
            last = found.look(older).view
            first = found.look(_before(found, last)).view
        else:
            first, last = found.look(older).view, found.look(newer).view
    check_one_board(first, last)
    both = list(pairs(first, last))
    lines = list(_changed(first, last))
    if as_json:
        told = {"from": first.id, "to": last.id, "diff": "".join(lines), "changes": [_as_json(one) for one in both]}
        printing.as_json(told)
        return EXIT_OK
    printing.say(f"#{first.id} ({first.board}, {first.mode}) → #{last.id} ({last.board}, {last.mode})")
    if code:
        _say_code(lines)
    rows = [(one.gpu, one.case or "", *_sides(one), _change(one)) for one in both]
    if rows:
        printing.table(("GPU", "case", f"#{first.id}", f"#{last.id}", "change"), rows, wrap=1)
    return EXIT_OK


def _before(found: Service, last: SubmissionView) -> int:
    """The number of the submission before it, to the same board."""
    for line in found.mine(last.board, limit=LOOK_BACK):
        if line["id"] < last.id:
            return int(line["id"])
    raise NotFound(
        "submission before", f"#{last.id}", hint=f"It is your first submission to {last.board}; give two numbers."
    )


def _changed(first: SubmissionView, last: SubmissionView) -> Iterator[str]:
    if first.source is None or last.source is None:
        raise Invalid("the source of one submission was deleted", hint="Compare other submissions.")
    old, new = ([f"{line}\n" for line in view.source.splitlines()] for view in (first, last) if view.source is not None)
    return difflib.unified_diff(old, new, f"#{first.id}/{first.file_name}", f"#{last.id}/{last.file_name}")


def _say_code(lines: list[str]) -> None:
    if not lines:
        printing.say("the code is the same")
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in lines:
        colour = colours.get(line[0])
        text = printing.escape(line.rstrip("\n"))
        printing.out().print(f"[{colour}]{text}[/]" if colour else text, soft_wrap=True)


def _sides(one: Pair) -> tuple[str, str]:
    def side(word: str | None, told: Interval | None) -> str:
        parts = (printing.coloured(word) if word else "", printing.score(*told) if told else "")
        return " ".join(part for part in parts if part)

    return side(one.before, one.before_s) or "–", side(one.after, one.after_s) or "–"


def _change(one: Pair) -> str:
    said = change(one.ratio, one.separated)
    if not said or one.ratio is None:
        return ""
    colour = "dim" if one.separated is False else "green" if one.ratio >= 1 else "red"
    return f"[{colour}]{said}[/]"


def _as_json(one: Pair) -> dict[str, Any]:
    return {
        "gpu": one.gpu,
        "case": one.case,
        "from": {"verdict": one.before, "score_s": one.before_s and one.before_s[0]},
        "to": {"verdict": one.after, "score_s": one.after_s and one.after_s[0]},
        "ratio": one.ratio,
        "separated": one.separated,
    }
