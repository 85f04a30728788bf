"""`kbslurm problem sync`: boards from a git repository of problems."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain import contest
from kbslurm.errors import EXIT_OK, EXIT_REJECTED


def problem_sync(
    repository: Annotated[str, typer.Argument(help="https:// or file:/// URL, a directory, or OWNER/NAME.")],
    problem_set: Annotated[str | None, typer.Option("--set", help="Only this problem set (default: all).")] = None,
    branch: Annotated[str | None, typer.Option(help="A branch, tag or commit.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also make changed problems live on boards in use.")] = False,
    visibility: Annotated[str, typer.Option(help="Visibility of new boards: public or private.")] = "public",
    as_json: Json = False,
) -> int:
    """Create and update boards from a repository of problems. Exit code 3: at least one is faulty.

    A directory is one of the machine where the service runs.
    """
    shown_to = contest.visibility(visibility)
    with host() as hosts:
        came = hosts.update_problems(
            repository,
            problem_set,
            branch=branch,
            force=force,
            visibility=shown_to,
        )
    for warning in came["warnings"]:
        printing.caution(warning)
    if as_json:
        printing.as_json({name: value for name, value in came.items() if name != "status"})
    else:
        printing.say(f"commit {came['commit'][:12]}")
        rows = [(name, "created", "") for name in came["created"]] + [(name, "updated", "") for name in came["updated"]]
        rows += [(row["name"], "skipped", printing.escape(row["reason"])) for row in came["skipped"]]
        rows += [(row["name"], "[red]error[/]", printing.escape(row["error"])) for row in came["errors"]]
        printing.table(("board", "", "why"), rows, wrap=2)
    return EXIT_REJECTED if came["errors"] else EXIT_OK
