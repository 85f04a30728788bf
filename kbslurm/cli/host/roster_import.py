"""`kbslurm roster import`: a course's people from a CSV."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.host.course_in_use import the_course
from kbslurm.cli.output import printing
from kbslurm.domain.roster import BYTES_CAP
from kbslurm.errors import EXIT_OK, Invalid

SHOWN = 20
FIRST_COURSE = "course"


def roster_import(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.csv", help="A list of your own, or what Canvas or Moodle exports.")
    ],
    course: Annotated[
        str | None,
        typer.Option(
            "--course", "-c", help=f"The course (default: the only one, or {FIRST_COURSE}).", show_default=False
        ),
    ] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only show what would change.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Students who aren't in the file leave the roster; their work stays.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Bring a course's roster to what a CSV says. Repeating it changes nothing, and a wrong line stops all of it."""
    try:
        with file.open("rb") as opened:
            data = opened.read(BYTES_CAP + 1)
    except OSError as error:
        raise Invalid(f"can't read the roster ({error.strerror})", file=file) from None
    with host() as hosts:
        told = hosts.import_roster(the_course(hosts, course, new=FIRST_COURSE), data, preview=preview, remove=remove)
    if as_json:
        printing.as_json(told)
        return EXIT_OK
    for note in told["notes"]:
        printing.caution(note)
    for what in ("added", "changed", "removed"):
        for one in told[what][:SHOWN]:
            printing.say(f"  {_SIGN[what]} {printing.escape(one['person'])}{printing.escape(_how(what, one))}")
        if len(told[what]) > SHOWN:
            printing.say(f"  {_SIGN[what]} and {len(told[what]) - SHOWN} more")
    counts = ", ".join(f"{len(told[what])} {what}" for what in ("added", "changed", "removed"))
    would = "would be " if preview else ""
    printing.say(f"course {told['course']}: {would}{counts}, {told['unchanged']} as before")
    return EXIT_OK


_SIGN = {"added": "+", "changed": "~", "removed": "-"}


def _how(what: str, one: Mapping[str, Any]) -> str:
    if what == "added":
        parts = [] if one["role"] == "student" else [one["role"]]
        parts += [f"section {one['section']}"] if one["section"] else []
        parts += [f"team {one['team']}"] if one["team"] else []
        return f": {', '.join(parts)}" if parts else ""
    parts = [
        name if before is None and after is None else f"{name} {before or 'none'} → {after or 'none'}"
        for name, (before, after) in one["differences"].items()
    ]
    return f": {', '.join(parts)}" if parts else ""
