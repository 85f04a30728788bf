"""`kbslurm whoami`: who you are at the service, or in the database."""

from __future__ import annotations

from kbslurm.cli.acting import known_person
from kbslurm.cli.arguments import As, Json
from kbslurm.cli.competitor.connect import check_identified, reached
from kbslurm.cli.context import opened_store, own_name
from kbslurm.cli.output import printing
from kbslurm.cli.service_in_use import in_use
from kbslurm.errors import EXIT_OK


def whoami(as_: As = None, as_json: Json = False) -> int:
    """Show who you are signed in as: at the service in use and its context, else in the database."""
    found = in_use()
    if found is not None:
        check_identified(found, as_)
        with reached(found.url, found.token) as client:
            person = client.me()
        name, banned, place = person.name, person.banned, found.url
        role: str | None = person.role
    else:
        with opened_store() as store:
            known, place = known_person(store, as_, made=False), store.where
            name, role, banned = (
                (own_name(), None, False) if known is None else (known.name, known.role, known.banned_at is not None)
            )
    context = None if found is None else found.context
    if as_json:
        printing.as_json({"person": name, "role": role, "banned": banned, "at": place, "context": context})
        return EXIT_OK
    where = place if context is None else f"{place} (context {context})"
    printing.say(f"{name} ({role or 'not known there yet'}{', banned' if banned else ''}) at {where}")
    return EXIT_OK
