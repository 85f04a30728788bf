"""`kbslurm problem show`: a problem's task and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import opened_store
from kbslurm.cli.lookup import newest_problem
from kbslurm.cli.output import printing
from kbslurm.cli.output.problem import print_problem
from kbslurm.errors import EXIT_OK


def problem_show(
    name: Annotated[str, typer.Argument(help="The problem's name, or its directory.")], as_json: Json = False
) -> int:
    """Show a problem: its task, how it is judged, and its limits. Hidden cases are counted, not shown."""
    from kbslurm.domain import problem as values
    from kbslurm.problems import loading

    if Path(name).exists():
        problem = loading.load(Path(name))
    else:
        with opened_store() as store:
            problem = newest_problem(store, name)
    if as_json:
        told = values.as_json(problem)
        told["hidden"] = len(problem.hidden)
        printing.as_json(told)
        return EXIT_OK
    print_problem(problem)
    return EXIT_OK
