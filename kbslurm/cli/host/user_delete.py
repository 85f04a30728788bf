"""`kbslurm user delete`: erase a person; what they did stays under a pseudonym."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.host.connect import host, person
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, Invalid


def user_delete(
    name: Annotated[
        str | None, typer.Argument(metavar="[PERSON]", help="Whom; leave it out with --due.", show_default=False)
    ] = None,
    due: Annotated[
        bool, typer.Option("--due", help="Everyone whose retention period is over ([policy] keep_people_days).")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only show what would be done.")] = False,
    as_json: Json = False,
) -> int:
    """Delete a person for good; what they did stays under a pseudonym. Without --yes nothing is changed.

    Their name, accounts, tokens, personal data and places on rosters are erased, and their open runs cancelled. Scores,
    code and the audit log stay.
    """
    if due == (name is not None):
        raise Invalid("name a person, or pass --due", hint="One of them, and only one.")
    with host() as hosts:
        if name is not None:
            whom = person(name)
            found = hosts.delete_user(whom) if yes else hosts.delete_preview(whom)
            return _one(found, as_json)
        return _all_due(hosts.delete_due()["deleted"], as_json) if yes else _those_due(hosts.deletions_due(), as_json)


def _one(found: Mapping[str, Any], as_json: bool) -> int:
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    erased = found["erased"]
    what = ", ".join(f"{count} {_WORDS[key]}" for key, count in erased.items() if count)
    stays = f"{found['submissions']} submissions and {found['audit_lines']} lines of the audit log"
    if found["pseudonym"] is not None:
        printing.say(f"{printing.escape(found['name'])} is deleted: erased {what or 'the name'}")
        printing.say(f"{stays} stay under {found['pseudonym']}")
        _archives(found)
        return EXIT_OK
    printing.say(f"deleting {printing.escape(found['name'])} would erase their name{', ' if what else ''}{what}")
    printing.say(f"{stays} would stay under a pseudonym, and the code as it is")
    if found["open_runs"]:
        printing.say(f"{found['open_runs']} open runs would be cancelled")
    _archives(found)
    printing.say("nothing was changed; --yes does it, for good")
    return EXIT_OK


def _archives(found: Mapping[str, Any]) -> None:
    """The archives from before, which a host has to write again."""
    for one in found["archives"]:
        kind = "private archive" if one["private"] else "archive"
        printing.say(
            f"earlier {kind} of {one['leaderboard']} to write again: {printing.escape(one['place'])}, by"
            f" {printing.escape(one['written_by'])}, {printing.when_told(one['at'])}"
        )


_WORDS = {
    "personal_data": "entry of personal data", "accounts": "accounts", "tokens": "tokens",
    "courses": "places on rosters", "roles": "roles on boards", "questions": "questions",
}  # fmt: skip


def _those_due(found: Mapping[str, Any], as_json: bool) -> int:
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    if found["keep_people_days"] is None:
        printing.say("no retention period is configured: nobody is due ([policy] keep_people_days)")
        return EXIT_OK
    printing.table(
        ("person", "last heard of"),
        [(printing.escape(one["name"]), printing.when_told(one["last_at"])) for one in found["due"]],
    )
    printing.say(f"{len(found['due'])} people are due; nothing was changed, --yes deletes them for good")
    return EXIT_OK


def _all_due(deleted: list[Mapping[str, Any]], as_json: bool) -> int:
    if as_json:
        printing.as_json({"deleted": deleted})
    else:
        printing.say(f"{len(deleted)} people are deleted")
    return EXIT_OK
