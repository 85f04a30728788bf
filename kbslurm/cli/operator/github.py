"""`kbslurm github`: use a repository's runners; see docs/overflow.md."""

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
    """Check whether a run would work: PASS, CAUTION or FAIL, each with its remedy. Starts nothing; exit code 1 on a
    FAIL."""
    from kbslurm import wiring
    from kbslurm.backends.github.backend import GithubBackend
    from kbslurm.backends.github.check import findings

    config = configuration()
    if not config.github.gpus:
        raise Misconfigured(
            "no GPU types are configured for GitHub",
            file=config.file,
            key="github.gpus",
            fix="docs/overflow.md lists what to set.",
        )
    backend = wiring.github_place(config).backend
    assert isinstance(backend, GithubBackend)
    try:
        with printing.progress(as_json) as tell:
            tell({"phase": f"checking {backend.api.url}"})
            found = list(findings(backend, shared_folders.eval_dir()))
    finally:
        backend.close()
    return print_findings(found, as_json, summed=True)


def install(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The repository's working copy.")],
    as_json: Json = False,
) -> None:
    """Install the workflow and harness in a working copy. Commit and push them yourself; repeat this after every
    upgrade."""
    from kbslurm.backends.github import repository_files

    changed = repository_files.install(folder, shared_folders.eval_dir())
    if as_json:
        printing.as_json({"folder": str(folder), "changed": changed})
    elif changed:
        printing.say(f"{len(changed)} files written to {folder}: commit and push them.")
    else:
        printing.say(f"{folder} is already up to date.")
