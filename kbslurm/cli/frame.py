"""The command tree and what every command shares: configuration, the store, who is asking, `--json`."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm import __version__
from kbslurm.errors import Invalid

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import Person

Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]
As = Annotated[str | None, typer.Option("--as", help="Act as this person (default: $KBSLURM_PERSON, else you).")]


class _InOrder(typer.core.TyperGroup):
    """Lists commands by name, whichever module was imported first."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx))


app = typer.Typer(
    name="kbslurm",
    cls=_InOrder,
    help="A GPU kernel competition on your own Slurm cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class _Chosen:
    """What stood before the command's name."""

    config: Path | None = None


chosen = _Chosen()


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"kbslurm {__version__}")
        raise typer.Exit


@app.callback()
def before(
    config: Annotated[
        Path | None, typer.Option("--config", help="kbslurm.toml to use.", envvar="KBSLURM_CONFIG", show_envvar=True)
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version and end.")
    ] = False,
) -> None:
    chosen.config = config


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


def asking() -> str:
    """Who is at the keyboard: $KBSLURM_PERSON, else the login name."""
    try:
        return os.environ.get("KBSLURM_PERSON") or getpass.getuser()
    except (KeyError, OSError):
        raise Invalid("who you are isn't known: this account has no name", hint="Say it with --as NAME.") from None


def acting(store: PostgresStore, name: str | None) -> Person:
    """Who acts. Whoever can open the database is known by its login name from the first time on, as a participant."""
    return store.ensure_person(name or asking())


def register() -> None:
    """Hang every command into the tree."""
    from kbslurm.cli import (  # noqa: F401
        audit,
        board,
        bot,
        cancel,
        config_,
        db,
        demo,
        diff,
        doctor,
        export,
        final,
        github,
        history,
        hosting,
        image,
        invite,
        login,
        modal_,
        people,
        problem,
        profile,
        rejudge,
        shadow,
        site,
        status,
        submit,
        token,
        triage,
        trial,
        up,
        watch,
        why,
    )


register()
