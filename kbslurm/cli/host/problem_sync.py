"""`kbslurm problem sync`: boards from a git repository of problems."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration, offered_gpus, opened_store, own_name
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
    """Create and update boards from a repository of problems. Exit code 3: at least one is faulty."""
    from kbslurm.problems import sync as problem_sync

    shown_to = contest.visibility(visibility)
    config = configuration()
    with opened_store() as store:
        order = problem_sync.Order(
            repository=repository,
            problem_set=problem_set,
            branch=branch,
            force=force,
            visibility=shown_to,
            min_isolation=config.policy.ranked_min_isolation,
            gpus=tuple(config.daemon.local.slots),
            by=own_name(),
        )
        came = problem_sync.sync(store, order, datetime.now(UTC))
        kept = {name: store.boards.get(name).gpus for name in (*came.created, *came.updated)}
    for name, gpus in kept.items():
        for warning in contest.unknown_gpus(gpus, tuple(offered_gpus())):
            printing.caution(f"{name}: {warning}")
    if as_json:
        printing.as_json(came)
    else:
        printing.say(f"commit {came.commit[:12]}")
        rows = [(name, "created", "") for name in came.created] + [(name, "updated", "") for name in came.updated]
        rows += [(name, "skipped", why) for name, why in came.skipped]
        rows += [(name, "[red]error[/]", printing.escape(why)) for name, why in came.errors]
        printing.table(("board", "", "why"), rows, wrap=2)
    return EXIT_REJECTED if came.errors else EXIT_OK
