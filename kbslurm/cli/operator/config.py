"""`kbslurm config …`: the settings in effect, and where they came from."""

from __future__ import annotations

import json

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK


def show_(as_json: Json = False) -> int:
    """Show every setting, its value and where it came from. Secrets are masked."""
    from kbslurm.config import display

    rows = list(display.shown(configuration()))
    if as_json:
        printing.as_json([{"key": key, "value": value, "from": origin} for key, value, origin in rows])
    else:
        printing.table(
            ("setting", "value", "from"), [tuple(map(printing.escape, map(str, row))) for row in rows], wrap=1
        )
    return EXIT_OK


def schema(as_json: Json = False) -> int:
    """Print the JSON schema of kbslurm.toml, for editors."""
    from kbslurm.config.sections import kbslurm_toml

    print(json.dumps(kbslurm_toml.schema(), indent=2, sort_keys=True))
    return EXIT_OK
