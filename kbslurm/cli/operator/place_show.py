"""`kbslurm place show`: all settings of a place, and where each came from."""

from __future__ import annotations

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration
from kbslurm.cli.host.place import PlaceName
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK


def show_(name: PlaceName, as_json: Json = False) -> int:
    """Show all settings of a place, with defaults and where each came from. Secrets are masked."""
    from kbslurm.cli.operator.place_kinds import KINDS, named
    from kbslurm.config.place_settings import policy_rows

    config = configuration()
    place, kind = named(config, name)
    rows = [("kind", kind, "–"), *KINDS[kind].rows(config, place), *policy_rows(config, place)]
    if as_json:
        settings = [{"key": key, "value": value, "from": origin} for key, value, origin in rows]
        printing.as_json({"place": place, "kind": kind, "settings": settings})
        return EXIT_OK
    lines = [(printing.escape(key), printing.escape(value), printing.escape(origin)) for key, value, origin in rows]
    printing.table(("setting", "value", "from"), lines, wrap=1)
    return EXIT_OK
