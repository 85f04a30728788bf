"""`kbslurm github`: use a repository's runners; see docs/overflow.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration
from kbslurm.cli.output import printing
from kbslurm.cli.output.findings import print_findings
from kbslurm.config import shared_folders
from kbslurm.domain.finding import Finding
from kbslurm.errors import KbslurmError, Misconfigured

if TYPE_CHECKING:
    from kbslurm.config.settings import Config


def check(as_json: Json = False) -> int:
    """Check whether a run would work: PASS, CAUTION or FAIL, each with its remedy. Starts nothing; exit code 1 on a
    FAIL."""
    config = configuration()
    if not config.github.gpus:
        raise Misconfigured(
            "no GPU types are configured for GitHub",
            file=config.file,
            key="github.gpus",
            fix="docs/overflow.md lists what to set.",
        )
    with printing.progress(as_json) as tell:
        tell({"phase": f"checking {config.github.api_url}"})
        found = list(github_findings(config))
    return print_findings(found, as_json, summed=True)


def github_findings(config: Config) -> Iterator[Finding]:
    """Whether a run would work at GitHub."""
    from kbslurm import wiring
    from kbslurm.backends.github.backend import GithubBackend
    from kbslurm.backends.github.check import findings

    backend = wiring.github_place(config).backend
    assert isinstance(backend, GithubBackend)
    try:
        yield from findings(backend, shared_folders.eval_dir())
    finally:
        backend.close()


def runners(config: Config, repository: str) -> list[str]:
    """The repository's own runners and their labels, if there is a token that may see them."""
    from kbslurm.backends.github.api import Api

    if "GITHUB_TOKEN" not in config.secrets or not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        return []
    try:
        tokens = (config.secret("GITHUB_TOKEN") or "").replace(",", " ").split()
        api = Api("github", url=config.github.api_url, repository=repository, tokens=tokens)
        try:
            answer = api.get("/actions/runners", per_page=100)
        finally:
            api.close()
    except KbslurmError as error:
        printing.note(f"the repository's runners can't be listed: {error.message}")
        return []
    if answer.status != 200:
        printing.note(f"the repository's runners can't be listed with this token (status {answer.status})")
        return []
    return [_runner(one) for one in answer.data.get("runners", ())]


def _runner(told: Mapping[str, Any]) -> str:
    labels = ", ".join(str(label.get("name")) for label in told.get("labels", ()))
    return f"{told.get('name')} ({told.get('status')}): {labels}"


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
