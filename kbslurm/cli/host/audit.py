"""`kbslurm audit`: the hosts' actions."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK


def audit(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many lines to show.")] = 50, as_json: Json = False
) -> int:
    """Show the audit log of hosts' actions, newest first."""
    with host() as hosts:
        found = hosts.audit(limit=limit)
    if as_json:
        printing.as_json(list(found))
        return EXIT_OK
    rows = []
    for event in found:
        facts = {name: value for name, value in event["data"].items() if value not in (None, "")}
        told = ", ".join(f"{name}={value}" for name, value in facts.items())
        rows.append(
            (
                printing.when_told(event["at"]),
                printing.escape(event["by"]),
                printing.escape(f"{event['via']} {event['where']}".strip()),
                event["act"],
                event["subject"],
                printing.escape(told),
            )
        )
    printing.table(("when", "who", "from", "act", "subject", ""), rows, wrap=5)
    return EXIT_OK
