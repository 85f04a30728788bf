"""`kbslurm user …`: the people who take part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli.acting import acting_name
from kbslurm.cli.arguments import As, Json, PersonName
from kbslurm.cli.context import opened_store, own_name
from kbslurm.cli.lookup import person_named
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, Invalid

if TYPE_CHECKING:
    from kbslurm.domain.access import Role
    from kbslurm.store.views import Person


def add(
    name: PersonName,
    role: Annotated[str, typer.Option(help="owner, staff or participant.")] = "participant",
    as_json: Json = False,
) -> int:
    """Add a person."""
    wanted = _role(role)
    with opened_store() as store:
        person = store.people.add(name, wanted, by=own_name())
    return _told(person, as_json)


def list_(as_json: Json = False) -> int:
    """Everybody."""
    with opened_store() as store:
        people = store.people.all()
    if as_json:
        printing.as_json(people)
        return EXIT_OK
    rows = [
        (
            printing.escape(p.name),
            p.role,
            printing.escape(p.team or ""),
            printing.when(p.banned_at) if p.banned_at else "",
            printing.when(p.created_at),
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
    wanted = _role(to)
    with opened_store() as store:
        store.people.set_role(person_named(store, name).id, wanted, by=own_name())
        return _told(person_named(store, name), as_json)


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
    with opened_store() as store:
        person = person_named(store, name)
        if none or to is not None:
            person = store.people.set_team(person.id, to, by=own_name())
    return _told(person, as_json)


def ban(
    name: PersonName,
    reason: Annotated[str, typer.Option(help="The reason shown to the person.")] = "",
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Ban a person: reject their submissions and hide them from the boards."""
    with opened_store() as store:
        store.people.ban(person_named(store, name).id, reason, by=acting_name(store, as_))
        return _told(person_named(store, name), as_json)


def unban(name: PersonName, as_: As = None, as_json: Json = False) -> int:
    """Lift a person's ban."""
    with opened_store() as store:
        store.people.unban(person_named(store, name).id, by=acting_name(store, as_))
        return _told(person_named(store, name), as_json)


def _role(text: str) -> Role:
    match text.lower():
        case "owner":
            return "owner"
        case "staff":
            return "staff"
        case "participant":
            return "participant"
        case _:
            raise Invalid(f"{text!r} isn't a valid role", hint="Choose owner, staff or participant.")


def _told(person: Person, as_json: bool) -> int:
    if as_json:
        printing.as_json(person)
    else:
        where = f", team {person.team}" if person.team else ""
        printing.say(f"{person.name}: {person.role}{where}" + (", banned" if person.banned_at else ""))
    return EXIT_OK
