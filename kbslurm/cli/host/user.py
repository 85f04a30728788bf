"""`kbslurm user …`: the people who take part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import As, Json, PersonName
from kbslurm.cli.host.connect import host, person
from kbslurm.cli.output import printing
from kbslurm.domain import contest
from kbslurm.errors import EXIT_OK, Invalid


def add(
    name: PersonName,
    role: Annotated[str, typer.Option(help="owner, staff or participant.")] = "participant",
    as_json: Json = False,
) -> int:
    """Add a person."""
    wanted = contest.role(role)
    with host() as hosts:
        return _told(hosts.add_user(name, wanted), as_json)


def list_(as_json: Json = False) -> int:
    """Everybody."""
    with host() as hosts:
        people = hosts.users()
    if as_json:
        printing.as_json(list(people))
        return EXIT_OK
    rows = [
        (
            printing.escape(p["name"]),
            p["role"],
            printing.escape(p["team"] or ""),
            printing.when_told(p["banned_at"]) if p["banned_at"] else "",
            printing.when_told(p["created_at"]),
        )
        for p in people
    ]
    printing.table(("person", "role", "team", "banned", "since"), rows)
    return EXIT_OK


def role(
    name: PersonName,
    to: Annotated[str, typer.Argument(help="owner, staff or participant.")],
    as_json: Json = False,
) -> int:
    """Change a person's role."""
    wanted = contest.role(to)
    with host() as hosts:
        return _told(hosts.set_role(person(name), wanted), as_json)


def team(
    name: PersonName,
    to: Annotated[
        str | None, typer.Argument(metavar="[TEAM]", help="The team's name; leave it out to see their current team.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Remove them from their team.")] = False,
    as_json: Json = False,
) -> int:
    """Add a person to a team or remove them from it; earlier submissions stay with the earlier team."""
    if none and to is not None:
        raise Invalid("TEAM and --none exclude each other", hint="Pass one of them.")
    with host() as hosts:
        if none or to is not None:
            return _told(hosts.set_team(person(name), to), as_json)
        return _told(hosts.user(person(name)), as_json)


def account(
    name: PersonName,
    to: Annotated[
        str | None,
        typer.Argument(metavar="[ACCOUNT]", help="An account of the cluster's; leave it out to see the current one."),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Charge no account of theirs.")] = False,
    as_json: Json = False,
) -> int:
    """Set the cluster account that pays for a person's jobs, where a cluster charges each person's own."""
    if none and to is not None:
        raise Invalid("ACCOUNT and --none exclude each other", hint="Pass one of them.")
    with host() as hosts:
        if none or to is not None:
            found = hosts.set_cluster_account(person(name), to)
        else:
            found = hosts.user(person(name))
    if as_json:
        printing.as_json(found)
    else:
        pays = found["cluster_account"]
        printing.say(f"{found['name']}: {f'account {pays} pays' if pays else 'no cluster account'}")
    return EXIT_OK


def ban(
    name: PersonName,
    reason: Annotated[str, typer.Option(help="The reason shown to the person.")] = "",
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Ban a person: reject their submissions and hide them from the boards."""
    with host(as_) as hosts:
        return _told(hosts.ban(person(name), reason), as_json)


def unban(name: PersonName, as_: As = None, as_json: Json = False) -> int:
    """Lift a person's ban."""
    with host(as_) as hosts:
        return _told(hosts.unban(person(name)), as_json)


def _told(found: Mapping[str, Any], as_json: bool) -> int:
    if as_json:
        printing.as_json(found)
    else:
        where = f", team {found['team']}" if found["team"] else ""
        printing.say(f"{found['name']}: {found['role']}{where}" + (", banned" if found["banned_at"] else ""))
    return EXIT_OK
