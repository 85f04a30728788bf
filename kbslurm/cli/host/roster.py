"""`kbslurm roster list|show|set|remove|export`: who is on a course's roster."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.host.course_in_use import Course, the_course
from kbslurm.cli.output import printing
from kbslurm.domain import roster
from kbslurm.errors import EXIT_OK, Invalid, NotFound

if TYPE_CHECKING:
    from kbslurm.cli.host.connect import Hosts

Whom = Annotated[str, typer.Argument(metavar="PERSON", help="Their name, number, e-mail address or student ID.")]


def list_(
    course: Course = None,
    section: Annotated[str | None, typer.Option(help="Only this section.")] = None,
    team: Annotated[str | None, typer.Option(help="Only this team.")] = None,
    as_json: Json = False,
) -> int:
    """List a course's roster by section and name."""
    with host() as hosts:
        found = hosts.roster(the_course(hosts, course))
    people = [
        one
        for one in found["people"]
        if (section is None or (one["section"] or "").lower() == section.strip().lower())
        and (team is None or one["team"] == roster.team_name(team))
    ]
    if as_json:
        printing.as_json({"course": found["course"], "people": people})
        return EXIT_OK
    rows = [
        (
            printing.escape(one["name"] or one["person"]),
            printing.escape(one["email"] or ""),
            printing.escape(one["student_id"] or ""),
            printing.escape(one["section"] or ""),
            printing.escape(one["team"] or ""),
            one["role"],
            _state(one),
        )
        for one in people
    ]
    printing.table(("name", "e-mail", "student ID", "section", "team", "role", "signed in"), rows)
    return EXIT_OK


def show_(whom: Whom, course: Course = None, as_json: Json = False) -> int:
    """Show one person of a roster, with the columns that came with them."""
    with host() as hosts:
        name = the_course(hosts, course)
        one = _one(hosts, name, whom)
    if as_json:
        printing.as_json({"course": name, **one})
        return EXIT_OK
    _say(one)
    for heading, cell in one["columns"].items():
        printing.say(f"  {printing.escape(heading)}: {printing.escape(cell)}")
    return EXIT_OK


def set_(
    whom: Whom,
    course: Course = None,
    section: Annotated[str | None, typer.Option(help="Their section; none: in none.")] = None,
    team: Annotated[str | None, typer.Option(help="Their team; none: in none.")] = None,
    role: Annotated[
        str | None, typer.Option(help="student, owner, assistant, grader or observer, on all of the course's boards.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Put a person on a roster, or change their section, team or role; earlier submissions stay with the earlier
    team."""
    wanted = None if role is None else roster.course_role(role)
    with host() as hosts:
        found = hosts.place_on_roster(
            the_course(hosts, course), whom, section=_or_none(section), team=_or_none(team), role=wanted
        )
    if as_json:
        printing.as_json(found)
    else:
        _say(found)
    return EXIT_OK


def remove(whom: Whom, course: Course = None, as_json: Json = False) -> int:
    """Take a person off a roster; they and what they submitted stay."""
    with host() as hosts:
        found = hosts.drop_from_roster(the_course(hosts, course), whom)
    if as_json:
        printing.as_json({"course": found["course"], "person": found["person"]})
    else:
        printing.say(f"{printing.escape(found['person'])} is no longer on the roster of {found['course']}")
    return EXIT_OK


def export(
    course: Course = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write (default: standard output).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list instead of CSV.")] = False,
) -> int:
    """Export a roster as a CSV that `roster import` takes again, with every column that came with it."""
    with host() as hosts:
        people = hosts.roster(the_course(hosts, course))["people"]
    text = f"{json.dumps(people, indent=2)}\n" if as_json else roster.as_csv(people)
    if out is None:
        sys.stdout.write(text)
        return EXIT_OK
    write_private(out, text)
    printing.say(f"{len(people)} people written to {printing.path(out)}, which only you may read")
    return EXIT_OK


def write_private(out: Path, text: str) -> None:
    """Write a file that holds personal data: for its owner only."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.touch(mode=0o600)
        out.chmod(0o600)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Invalid(f"can't write the file ({error.strerror})", file=out) from None


def _one(hosts: Hosts, course: str, whom: str) -> Mapping[str, Any]:
    people = hosts.roster(course)["people"]
    wanted = whom.strip().casefold()
    for one in people:
        keys = (one["email"], one["student_id"], one["person"], f"person:{one['person_id']}", str(one["person_id"]))
        if wanted in {str(key).casefold() for key in keys if key}:
            return cast("Mapping[str, Any]", one)
    raise NotFound(f"person on the roster of {course}", whom, hint="kbslurm roster list shows everyone on it.")


def _or_none(text: str | None) -> str | None:
    return "" if text == "none" else text


def _state(one: Mapping[str, Any]) -> str:
    if one["has_signed_in"]:
        return "yes"
    return f"invited until {printing.when_told(one['invited_until'])}" if one["invited_until"] else ""


def _say(one: Mapping[str, Any]) -> None:
    parts = [one["role"]]
    parts += [f"section {one['section']}"] if one["section"] else []
    parts += [f"team {one['team']}"] if one["team"] else []
    parts += [one["email"]] if one["email"] else []
    parts += [f"student ID {one['student_id']}"] if one["student_id"] else []
    called = one["name"] or one["person"]
    known = f" ({one['person']} on boards)" if called != one["person"] else ""
    printing.say(f"{printing.escape(called)}{printing.escape(known)}: {printing.escape(', '.join(parts))}")
