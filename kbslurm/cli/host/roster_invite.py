"""`kbslurm roster invite`: a link for each person, as a CSV or as mails."""

from __future__ import annotations

from collections.abc import Mapping
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.host.course_in_use import Course, the_course
from kbslurm.cli.host.roster import write_private
from kbslurm.cli.output import printing
from kbslurm.domain import spreadsheet
from kbslurm.errors import EXIT_OK, Invalid

COLUMNS = ("name", "email", "section", "team", "person", "link", "code", "expires_at")
TEMPLATE_CAP = 100_000
MAIL = """Hello {name},

you are on the roster of {course}, where kernels for GPUs are written, judged and ranked.

Sign in with this link. It is yours alone, and works once, until {until}:

    {link}

From a terminal, the same is:

    kbslurm join {link}
"""


def roster_invite(
    people: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PERSON]…", help="Whom: names, e-mail addresses or student IDs (default: everyone)."),
    ] = None,
    course: Course = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write them as a CSV, for a mail merge.")] = None,
    mails: Annotated[
        Path | None, typer.Option("--mails", help="Write one mail per person (.eml) into this folder.")
    ] = None,
    template: Annotated[
        Path | None,
        typer.Option(help="The text of the mails, with {name}, {course}, {link}, {code}, {until} and {service}."),
    ] = None,
    subject: Annotated[str, typer.Option(help="The mails' subject.")] = "Your account for {course}",
    days: Annotated[int, typer.Option(min=1, max=366, help="How many days the links work.")] = 14,
    again: Annotated[bool, typer.Option("--again", help="Also for those who have signed in already.")] = False,
    as_json: Json = False,
) -> int:
    """Make a link for each person on a roster, by which they sign in once; an earlier unused link of theirs ends."""
    if template is not None and mails is None:
        raise Invalid("--template is the text of mails", hint="Pass --mails FOLDER as well.")
    if not subject.isprintable():
        raise Invalid("the subject has a line break or another control character", hint="Write it on one line.")
    text = MAIL if template is None else _read(template)
    with host() as hosts:
        made = hosts.invite_roster(the_course(hosts, course), people or (), days=days, again=again)
    rows = [{**one, "expires_at": made["expires_at"]} for one in made["invitations"]]
    if csv is not None:
        write_private(csv, spreadsheet.as_csv(COLUMNS, rows))
    written = 0 if mails is None else _write_mails(mails, made, text, subject)
    if as_json:
        printing.as_json(made)
        return EXIT_OK
    for one in made["left_out"]:
        printing.caution(f"{printing.escape(one['person'])} gets no link: {one['why']}")
    if csv is None and mails is None:
        for one in made["invitations"]:
            printing.say(f"{printing.escape(one['name'])}  {printing.escape(one['email'] or '')}  {one['link']}")
    until = printing.when_told(made["expires_at"])
    printing.say(f"{len(rows)} invitation{'' if len(rows) == 1 else 's'} to {made['course']}, until {until}")
    if csv is not None:
        printing.say(f"in {printing.path(csv)}, which only you may read")
    if mails is not None:
        printing.say(f"{written} mails in {printing.path(mails)}; nothing was sent")
    return EXIT_OK


def _write_mails(folder: Path, made: Mapping[str, Any], text: str, subject: str) -> int:
    written = 0
    for one in made["invitations"]:
        if not one["email"]:
            printing.caution(f"{printing.escape(one['name'])} has no e-mail address: no mail is written for them")
            continue
        mail = EmailMessage(policy=SMTP)
        mail["To"] = one["email"]
        mail["Subject"] = _filled(subject, made, one)
        mail.set_content(_filled(text, made, one))
        write_private(folder / f"{one['person_id']}.eml", mail.as_string())
        written += 1
    return written


def _filled(text: str, made: Mapping[str, Any], one: Mapping[str, Any]) -> str:
    """The text with what is known of this person; a name is never read as one of the fields."""
    told = {
        "course": made["course"],
        "link": one["link"],
        "code": one["code"],
        "until": printing.when_told(made["expires_at"]),
        "service": one["link"].partition("/join/")[0],
        "name": one["name"],
    }
    for field, value in told.items():
        text = text.replace("{" + field + "}", str(value))
    return text


def _read(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(TEMPLATE_CAP)
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"can't read the template ({error})", file=file) from None
