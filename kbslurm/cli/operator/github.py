"""`kbslurm github`: lending a repository's runners. docs/overflow.md walks through it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration
from kbslurm.cli.output import printing
from kbslurm.cli.output.findings import print_findings
from kbslurm.config import shared_folders
from kbslurm.errors import Misconfigured


def check(as_json: Json = False) -> int:
    """Would a run go through? PASS, CAUTION or FAIL, each with its remedy. Starts nothing; exit code 1 on a FAIL."""
    from kbslurm import wiring
    from kbslurm.backends.github.backend import GithubBackend
    from kbslurm.backends.github.check import findings

    config = configuration()
    if not config.github.gpus:
        raise Misconfigured(
            "no GPU type is run on GitHub",
            file=config.file,
            key="github.gpus",
            fix="docs/overflow.md says what to set.",
        )
    backend = wiring.github_place(config).backend
    assert isinstance(backend, GithubBackend)
    try:
        with printing.progress(as_json) as tell:
            tell({"phase": f"asking {backend.api.url}"})
            found = list(findings(backend, shared_folders.eval_dir()))
    finally:
        backend.close()
    return print_findings(found, as_json, summed=True)


def install(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A working copy of the repository.")],
    as_json: Json = False,
) -> None:
    """Put workflow and harness into a working copy. Commit and push them yourself; do it again after an upgrade."""
    from kbslurm.backends.github import repository_files

    changed = repository_files.install(folder, shared_folders.eval_dir())
    if as_json:
        printing.as_json({"folder": str(folder), "changed": changed})
    elif changed:
        printing.say(f"{len(changed)} files were written to {folder}: commit and push them.")
    else:
        printing.say(f"{folder} has them all already.")
