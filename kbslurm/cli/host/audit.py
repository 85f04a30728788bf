"""`kbslurm audit`: the hosts' actions."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import opened_store
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK

SHOWN_APART = ("by", "via", "where")


def audit(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many lines to show.")] = 50, as_json: Json = False
) -> int:
    """Show the audit log of hosts' actions, newest first."""
    with opened_store() as store:
        found = store.events.audit_log(limit=limit)
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    rows = []
    for event in found:
        facts = {
            name: value for name, value in event.data.items() if name not in SHOWN_APART and value not in (None, "")
        }
        told = ", ".join(f"{name}={value}" for name, value in facts.items())
        by = str(event.data.get("by", ""))
        rows.append(
            (
                printing.when(event.at),
                printing.escape(by),
                printing.escape(" ".join(str(event.data.get(name, "")) for name in ("via", "where")).strip()),
                event.kind.removeprefix("staff."),
                event.subject,
                printing.escape(told),
            )
        )
    printing.table(("when", "who", "from", "act", "subject", ""), rows, wrap=5)
    return EXIT_OK
