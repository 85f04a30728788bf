"""`kbslurm worklog BOARD PERSON`: what somebody has submitted and how it went, for whoever grades it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host, person
from kbslurm.cli.host.roster import write_private
from kbslurm.cli.output import printing
from kbslurm.domain import work_logs
from kbslurm.domain.amounts import counted
from kbslurm.errors import EXIT_OK, Invalid

FORMATS = ("html", "csv")
TEAM = "team:"


def worklog(
    name: BoardName,
    whose: Annotated[str, typer.Argument(metavar="PERSON", help="The person's name or number, or team:NAME.")],
    form: Annotated[str, typer.Option("--format", "-f", help="html or csv.")] = "html",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write (default: standard output).")
    ] = None,
    after: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Only submissions after this number: a log has 200 at once.")
    ] = 0,
    as_json: Json = False,
) -> int:
    """Write what a person or team has submitted to a board: times, changed lines, verdicts, scores, profiles.

    The page stands alone: it needs no server and loads nothing.
    """
    if form not in FORMATS:
        raise Invalid(f"{form!r} isn't a format of work logs", hint=f"Choose one of: {', '.join(FORMATS)}.")
    with host() as hosts:
        found = hosts.work_log(name, whose if whose.startswith(TEAM) else person(whose), after=after)
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    if found["next_after"]:
        printing.note(f"{work_logs.part_in_words(found)} Write them with --after {found['next_after']}")
    if form == "csv":
        text = work_logs.as_csv(found)
    else:
        from kbslurm.api.pages.rendering import STYLE, text_of

        text = str(
            text_of("staff/worklog.html", log=found, part=work_logs.part_in_words(found), onward="", style=STYLE)
        )
    if out is None:
        sys.stdout.write(text)
        return EXIT_OK
    write_private(out, text)
    printing.say(f"{counted(len(found['submissions']), 'submission')} written to {printing.path(out)}")
    return EXIT_OK
