"""`kbslurm db …`: the database's schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration
from kbslurm.cli.output import printing
from kbslurm.cli.service_in_use import say_database
from kbslurm.errors import EXIT_BUG, EXIT_OK


@contextmanager
def _database() -> Iterator[str]:
    """The database that is configured here, whatever service is in use."""
    from kbslurm import wiring

    config = configuration()
    say_database(config)
    with wiring.database(config) as url:
        yield url


def upgrade(as_json: Json = False) -> int:
    """Upgrade the schema to this version. Safe to run twice, even concurrently."""
    from kbslurm.store import migrate

    with _database() as url:
        before = migrate.current(url)
        migrate.upgrade(url)
        after = migrate.current(url)
    if as_json:
        printing.as_json({"before": before, "after": after})
    else:
        printing.say(f"the database is at {after}" + (" already" if before == after else f" (was {before or 'empty'})"))
    return EXIT_OK


def check(as_json: Json = False) -> int:
    """Check the database: the state of its schema, who leads, how late that is, and the last event.

    The schema is current, behind, empty or ahead. Exit code 1 unless it is current.
    """
    from kbslurm.store import migrate

    with _database() as url:
        state, at = migrate.check(url), migrate.current(url)
        if state is migrate.Schema.CURRENT:
            return _told(url, as_json=as_json)
    if as_json:
        printing.as_json({"schema": state.value, "revision": at})
    else:
        printing.say(f"the schema is {state.value}" + (f" ({at})" if at else ""))
        printing.say("kbslurm db upgrade brings it up to date")
    return EXIT_BUG


def _told(url: str, *, as_json: bool) -> int:
    from kbslurm.api.hosting import database
    from kbslurm.store.postgres import PostgresStore

    with PostgresStore(url) as store:
        found = database.told(store)
    if as_json:
        printing.as_json(found)
    else:
        for line in database.in_words(found):
            printing.say(line)
    return EXIT_OK


def downgrade(
    to: Annotated[str, typer.Argument(help="The revision to go back to, or base.")],
    yes: Annotated[bool, typer.Option("--yes", help="Confirm that this can lose data.")] = False,
    as_json: Json = False,
) -> int:
    """Downgrade the schema. Data that doesn't fit the older schema is lost, so it requires --yes."""
    from kbslurm.errors import Invalid
    from kbslurm.store import migrate

    if not yes:
        raise Invalid("a downgrade can lose data", hint="Make a backup (pg_dump), then pass --yes.")
    with _database() as url:
        before = migrate.current(url)
        migrate.downgrade(url, to)
        after = migrate.current(url)
    if as_json:
        printing.as_json({"before": before, "after": after})
    else:
        printing.say(f"the database is at {after or 'nothing'}")
    return EXIT_OK
