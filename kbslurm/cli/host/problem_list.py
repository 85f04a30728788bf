"""`kbslurm problem list`: the problems."""

from __future__ import annotations

from kbslurm.cli.arguments import Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK


def problem_list(as_json: Json = False) -> int:
    """List the problems, newest version first."""
    with host() as hosts:
        found = hosts.problems()
    if as_json:
        printing.as_json(list(found))
    elif found:
        rows = [
            (
                p["name"],
                str(p["id"]),
                p["digest"][:12],
                printing.when_told(p["created_at"]),
                printing.escape(p.get("inputs", "")),
            )
            for p in found
        ]
        printing.table(("problem", "version", "digest", "added", "inputs"), rows, wrap=4)
    else:
        printing.say("no problems yet; kbslurm problem add DIRECTORY adds one")
    return EXIT_OK
