"""Who runs a command: the person given with --as or $KBSLURM_PERSON, else the one with the login name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kbslurm.cli.context import configuration, own_name
from kbslurm.cli.lookup import person_named
from kbslurm.errors import NotFound

if TYPE_CHECKING:
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import Person


def acting_person(store: PostgresStore, name: str | None) -> Person:
    """The current person, or NotFound. See `known_person`."""
    found = known_person(store, name)
    if found is None:
        raise NotFound("person", own_name(), hint="Ask a host to add you (kbslurm user add NAME), or pass --as NAME.")
    return found


def known_person(store: PostgresStore, name: str | None, *, made: bool = True) -> Person | None:
    """The person given with --as or $KBSLURM_PERSON, who must exist; else the one with the login name, or None. In an
    embedded database, which is its user's own, the login name becomes a person on first use unless `made` is false."""
    name = name or os.environ.get("KBSLURM_PERSON")
    if name:
        return person_named(store, name)
    login = own_name()
    found = store.people.find(login)
    if found is None and made and configuration().database_url is None:
        from kbslurm.cli.output import printing

        found = store.people.ensure(login, by=login)
        printing.note(f"you are new in this database, so {found.name!r} was added as a participant")
    return found
