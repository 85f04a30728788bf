"""`kbslurm problem show`: a problem's task and limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import Json, Root
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.cli.output.problem import print_problem
from kbslurm.errors import EXIT_OK, Invalid, NotFound


def problem_show(
    name: Annotated[str, typer.Argument(help="The problem's name, or its directory with a slash: ./NAME.")],
    root: Root = None,
    as_json: Json = False,
) -> int:
    """Show a problem: its task, how it is judged, and its limits. Hidden cases are counted, not shown."""
    from kbslurm.api.hosting.problems import shown
    from kbslurm.problems import loading

    if "/" in name or name in (".", ".."):
        told: Mapping[str, Any] = shown(loading.load(Path(name), root=root))
    elif root is not None:
        raise Invalid(f"--root is for a directory, and {name} is a problem's name", hint=f"Give ./{name}.")
    else:
        with host() as hosts:
            try:
                told = hosts.problem(name)
            except NotFound as error:
                if Path(name).exists():
                    error.hint = f"For the one in this directory: kbslurm problem show ./{name}"
                raise
    if as_json:
        printing.as_json(told)
        return EXIT_OK
    print_problem(told)
    return EXIT_OK
