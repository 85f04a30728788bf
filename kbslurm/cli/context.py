"""What every command uses: the configuration, the database, and the current person."""

from __future__ import annotations

import getpass
import os
import platform
import pwd
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kbslurm.errors import Invalid, KbslurmError, NotFound

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import Person


class _Chosen:
    """The options given before the command's name."""

    config: Path | None = None


chosen = _Chosen()


def configuration() -> Config:
    """kbslurm.toml and the environment, as one value."""
    from kbslurm.config import settings as config

    return config.load(chosen.config)


def offered_gpus() -> Mapping[str, int]:
    """How many runs the configured places take at once, by GPU type; empty if there is none, or one can't be read."""
    from kbslurm import wiring

    try:
        return wiring.slots(configuration())
    except KbslurmError:
        return {}


@contextmanager
def opened_store() -> Iterator[PostgresStore]:
    """The database, migrated; an embedded one if none is configured."""
    from kbslurm import wiring
    from kbslurm.store import origin

    with origin.acting("command", account_and_host()), wiring.opened_store(configuration()) as store:
        yield store


def account_and_host() -> str:
    """The account that runs this command, and its machine: whatever name the command is given, this is who it was."""
    try:
        account = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        account = str(os.getuid())
    return f"{account}@{platform.node()}"


def own_name() -> str:
    """The current person's name: $KBSLURM_PERSON, else the login name."""
    try:
        return os.environ.get("KBSLURM_PERSON") or getpass.getuser()
    except (KeyError, OSError):
        raise Invalid("can't tell who you are: this account has no name", hint="Pass --as NAME.") from None


def acting_name(store: PostgresStore, name: str | None) -> str:
    """Who answers for a host's act: the person given with --as, who must exist, else the current user."""
    from kbslurm.cli.lookup import person_named

    return own_name() if name is None else person_named(store, name).name


def acting_person(store: PostgresStore, name: str | None) -> Person:
    """The current person, or NotFound. See `known_person`."""
    found = known_person(store, name)
    if found is None:
        raise NotFound("person", own_name(), hint="Ask a host to add you (kbslurm user add NAME), or pass --as NAME.")
    return found


def known_person(store: PostgresStore, name: str | None, *, made: bool = True) -> Person | None:
    """The person given with --as or $KBSLURM_PERSON, who must exist; else the one with the login name, or None. In an
    embedded database, which is its user's own, the login name becomes a person on first use unless `made` is false."""
    from kbslurm.cli.lookup import person_named

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
