"""What every command works with: the configuration, the database, and the person who asks."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kbslurm.errors import Invalid

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import Person


class _Chosen:
    """What stood before the command's name."""

    config: Path | None = None


chosen = _Chosen()


def configuration() -> Config:
    """kbslurm.toml and the environment, as one value."""
    from kbslurm.config import settings as config

    return config.load(chosen.config)


@contextmanager
def opened_store() -> Iterator[PostgresStore]:
    """The database, migrated; an embedded one of our own when none is named."""
    from kbslurm import wiring

    with wiring.opened_store(configuration()) as store:
        yield store


def own_name() -> str:
    """Who is at the keyboard: $KBSLURM_PERSON, else the login name."""
    try:
        return os.environ.get("KBSLURM_PERSON") or getpass.getuser()
    except (KeyError, OSError):
        raise Invalid("who you are isn't known: this account has no name", hint="Say it with --as NAME.") from None


def acting_person(store: PostgresStore, name: str | None) -> Person:
    """Who acts. Whoever can open the database is known by its login name from the first time on, as a participant."""
    return store.people.ensure(name or own_name())
