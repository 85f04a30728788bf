"""`kbslurm db …`: the database's schema."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_BUG, EXIT_OK


def upgrade(as_json: Json = False) -> int:
    """Bring the schema to this version's. Safe to run twice, and by two at once."""
    from kbslurm import wiring
    from kbslurm.store import migrate

    with wiring.database(configuration()) as url:
        before = migrate.current(url)
        migrate.upgrade(url)
        after = migrate.current(url)
    if as_json:
        printing.as_json({"before": before, "after": after})
    else:
        printing.say(f"the database is at {after}" + (" already" if before == after else f" (was {before or 'empty'})"))
    return EXIT_OK


def check(as_json: Json = False) -> int:
    """Say how the schema stands: current, behind, empty or ahead. Exit code 1 unless it is current."""
    from kbslurm import wiring
    from kbslurm.store import migrate

    with wiring.database(configuration()) as url:
        state, at = migrate.check(url), migrate.current(url)
    if as_json:
        printing.as_json({"schema": state.value, "revision": at})
    else:
        printing.say(f"the schema is {state.value}" + (f" ({at})" if at else ""))
        if state.value in ("empty", "behind"):
            printing.say("kbslurm db upgrade brings it up to date")
    return EXIT_OK if state.value == "current" else EXIT_BUG


def downgrade(
    to: Annotated[str, typer.Argument(help="The revision to go back to, or base.")],
    yes: Annotated[bool, typer.Option("--yes", help="I know that this can lose data.")] = False,
    as_json: Json = False,
) -> int:
    """Go back to an older schema. Data that it has no place for is lost, so it wants --yes."""
    from kbslurm import wiring
    from kbslurm.errors import Invalid
    from kbslurm.store import migrate

    if not yes:
        raise Invalid("a downgrade can lose data", hint="Make a backup (pg_dump), then say --yes.")
    with wiring.database(configuration()) as url:
        before = migrate.current(url)
        migrate.downgrade(url, to)
        after = migrate.current(url)
    if as_json:
        printing.as_json({"before": before, "after": after})
    else:
        printing.say(f"the database is at {after or 'nothing'}")
    return EXIT_OK
