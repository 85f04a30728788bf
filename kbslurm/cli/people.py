"""`kbslurm user …` and `kbslurm intake …`: who takes part, and whether submissions are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli import show
from kbslurm.cli.frame import As, Json, app, asking, opened_store
from kbslurm.errors import EXIT_OK, Invalid, NotFound

if TYPE_CHECKING:
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import Person, Role

group = typer.Typer(help="People: add, list, role, team, link, token, ban, unban.", no_args_is_help=True)
app.add_typer(group, name="user")
intake = typer.Typer(help="Whether submissions are taken: start, stop, show.", no_args_is_help=True)
app.add_typer(intake, name="intake")

Name = Annotated[str, typer.Argument(help="The person's name.")]


@group.command()
def add(
    name: Name,
    role: Annotated[str, typer.Option(help="owner, staff or participant.")] = "participant",
    as_json: Json = False,
) -> int:
    """Add a person."""
    wanted = _role(role)
    with opened_store() as store:
        person = store.add_person(name, wanted)
        store.audit(asking(), "user.add", f"person:{person.id}", {"name": name, "role": wanted})
    return _told(person, as_json)


@group.command("list")
def list_(as_json: Json = False) -> int:
    """Everybody."""
    with opened_store() as store:
        people = store.people()
    if as_json:
        show.as_json(people)
        return EXIT_OK
    rows = [
        (
            show.escape(p.name),
            p.role,
            show.escape(p.team or ""),
            show.when(p.banned_at) if p.banned_at else "",
            show.when(p.created_at),
        )
        for p in people
    ]
    show.table(("person", "role", "team", "banned", "since"), rows)
    return EXIT_OK


@group.command()
def role(
    name: Name,
    to: Annotated[str, typer.Argument(help="owner, staff or participant.")],
    as_json: Json = False,
) -> int:
    """Change what a person may do."""
    wanted = _role(to)
    with opened_store() as store:
        store.set_role(_known(store, name).id, wanted, by=asking())
        return _told(_known(store, name), as_json)


@group.command()
def team(
    name: Name,
    to: Annotated[
        str | None, typer.Argument(metavar="[TEAM]", help="Its name; without one it is said which they are in.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Let them be in no team.")] = False,
    as_json: Json = False,
) -> int:
    """Put a person into a team, or out of it; what they submitted before stays with the team of then."""
    if none and to is not None:
        raise Invalid("a person is in one team or in none", hint="Pass TEAM or --none, not both.")
    with opened_store() as store:
        person = _known(store, name)
        if none or to is not None:
            person = store.set_team(person.id, to, by=asking())
    return _told(person, as_json)


@group.command()
def ban(
    name: Name,
    reason: Annotated[str, typer.Option(help="What the person is told.")] = "",
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Take no more submissions from a person, and leave them off the boards."""
    with opened_store() as store:
        store.ban(_known(store, name).id, reason, by=as_ or asking())
        return _told(_known(store, name), as_json)


@group.command()
def unban(name: Name, as_: As = None, as_json: Json = False) -> int:
    """Take submissions from a person again."""
    with opened_store() as store:
        store.unban(_known(store, name).id, by=as_ or asking())
        return _told(_known(store, name), as_json)


@intake.command()
def start(as_json: Json = False) -> int:
    """Take submissions again."""
    return _switch(True, as_json)


@intake.command()
def stop(as_json: Json = False) -> int:
    """Take no submissions until started again; what was accepted goes on. It survives a restart."""
    return _switch(False, as_json)


@intake.command("show")
def show_(as_json: Json = False) -> int:
    """Whether submissions are taken."""
    with opened_store() as store:
        accepts = store.accepts_jobs()
    return _accepts(accepts, as_json)


def _switch(accepts: bool, as_json: bool) -> int:
    with opened_store() as store:
        store.set_accepts_jobs(accepts, by=asking())
    return _accepts(accepts, as_json)


def _accepts(accepts: bool, as_json: bool) -> int:
    if as_json:
        show.as_json({"accepts_jobs": accepts})
    else:
        show.say(
            "submissions are taken" if accepts else "submissions are paused; kbslurm intake start takes them again"
        )
    return EXIT_OK


def _role(text: str) -> Role:
    match text.lower():
        case "owner":
            return "owner"
        case "staff":
            return "staff"
        case "participant":
            return "participant"
        case _:
            raise Invalid(f"there is no role {text!r}", hint="owner, staff or participant.")


def _known(store: PostgresStore, name: str) -> Person:
    person = store.person(name)
    if person is None:
        raise NotFound("person", name, hint="kbslurm user list shows everybody.")
    return person


def _told(person: Person, as_json: bool) -> int:
    if as_json:
        show.as_json(person)
    else:
        where = f", team {person.team}" if person.team else ""
        show.say(f"{person.name}: {person.role}{where}" + (", banned" if person.banned_at else ""))
    return EXIT_OK
