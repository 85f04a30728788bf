"""`kbslurm whoami`: who you are at the service, or in the database."""

from __future__ import annotations

from kbslurm.cli.acting import known_person
from kbslurm.cli.arguments import As, Json
from kbslurm.cli.competitor.connect import reached, url
from kbslurm.cli.context import opened_store, own_name
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, Invalid


def whoami(as_: As = None, as_json: Json = False) -> int:
    """Show who you are signed in as: at the service in $KBSLURM_URL, else in the database."""
    named = url()
    if named is not None:
        if as_ is not None:
            raise Invalid(
                f"--as works only with the database; {named} identifies you by your token", hint="Run: kbslurm login"
            )
        with reached(named) as client:
            person = client.me()
        name, banned, place = person.name, person.banned, named
        role: str | None = person.role
    else:
        with opened_store() as store:
            known, place = known_person(store, as_, made=False), store.where
            name, role, banned = (
                (own_name(), None, False) if known is None else (known.name, known.role, known.banned_at is not None)
            )
    if as_json:
        printing.as_json({"person": name, "role": role, "banned": banned, "at": place})
        return EXIT_OK
    printing.say(f"{name} ({role or 'not known there yet'}{', banned' if banned else ''}) at {place}")
    return EXIT_OK
