"""`kbslurm config …`: what holds, and where it came from."""

from __future__ import annotations

import json

import typer

from kbslurm.cli import show
from kbslurm.cli.frame import Json, app, configuration
from kbslurm.errors import EXIT_OK

group = typer.Typer(help="The configuration: show, schema.", no_args_is_help=True)
app.add_typer(group, name="config")


@group.command("show")
def show_(as_json: Json = False) -> int:
    """Every setting, its value and where it came from. Secrets are masked."""
    from kbslurm.config import display

    rows = list(display.shown(configuration()))
    if as_json:
        show.as_json([{"key": key, "value": value, "from": origin} for key, value, origin in rows])
    else:
        show.table(("setting", "value", "from"), [tuple(map(show.escape, map(str, row))) for row in rows], wrap=1)
    return EXIT_OK


@group.command()
def schema(as_json: Json = False) -> int:
    """The JSON schema of kbslurm.toml, for editors."""
    from kbslurm.config.sections import kbslurm_toml

    print(json.dumps(kbslurm_toml.schema(), indent=2, sort_keys=True))
    return EXIT_OK
