"""`kbslurm problem list`: the problems."""

from __future__ import annotations

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import opened_store
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK


def problem_list(as_json: Json = False) -> int:
    """List the problems, newest version first."""
    with opened_store() as store:
        found = store.problems.all()
    if as_json:
        printing.as_json(found)
    elif found:
        rows = [(p.name, str(p.id), p.digest[:12], printing.when(p.created_at)) for p in found]
        printing.table(("problem", "version", "digest", "added"), rows)
    else:
        printing.say("no problems yet; kbslurm problem add DIRECTORY adds one")
    return EXIT_OK
