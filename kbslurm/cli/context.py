"""What every command uses: the configuration, the database, and the current person."""

from __future__ import annotations

import getpass
import os
import platform
import pwd
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kbslurm.cli.chosen import chosen
from kbslurm.cli.service_in_use import check_none_in_use
from kbslurm.errors import Invalid, KbslurmError

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.store.postgres import PostgresStore


def configuration() -> Config:
    """kbslurm.toml and the environment, as one value."""
    from kbslurm.config import settings as config

    return config.load(chosen.config)


def lenient_configuration() -> Config:
    """The same for checks: a secret that can't be read is theirs to tell, once they look at it."""
    from kbslurm.config import settings as config

    return config.load(chosen.config, lenient=True)


def offered_gpus() -> Mapping[str, int]:
    """How many runs the configured places take at once, by GPU type; empty if there is none, or one can't be read."""
    from kbslurm import wiring

    try:
        return wiring.slots(configuration())
    except KbslurmError:
        return {}


@contextmanager
def opened_store() -> Iterator[PostgresStore]:
    """The database, migrated; an embedded one if none is configured. Invalid while a service is to be used instead."""
    from kbslurm import wiring
    from kbslurm.store import origin

    check_none_in_use()
    with origin.acting("command", account_and_host()), wiring.opened_store(configuration()) as store:
        yield store


@contextmanager
def existing_store() -> Iterator[PostgresStore | None]:
    """The database if there is one, else None: makes none, and upgrades none but an embedded one."""
    from kbslurm import wiring
    from kbslurm.store import migrate

    config = configuration()
    if not wiring.has_database(config):
        yield None
        return
    if config.database_url is not None:
        migrate.ensure_current(config.database_url)
    with wiring.opened_store(config, migrated=config.database_url is None) as store:
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
