"""Which way leads to a site's scheduler: its commands, here or over ssh, or slurmrestd in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from kbslurm.backends.slurm.commands import Answer, Commands
from kbslurm.backends.slurm.executor import KbExecutor, KbJob
from kbslurm.backends.slurm.rest.commands import RestCommands
from kbslurm.domain.site import Site


def commands_of(
    site: Site,
    *,
    environ: Mapping[str, str] | None = None,
    heard: Callable[[Answer], None] | None = None,
    before: Callable[[], None] | None = None,
) -> Commands:
    """The site's scheduler, however it is reached."""
    kind = RestCommands if site.submit.via == "rest" else Commands
    return kind(site, environ=environ, heard=heard, before=before)


def executor_of(
    commands: Commands, folder: Path, script: str, *, jobs: type[KbJob], crash_point: Callable[[str], None]
) -> KbExecutor:
    """What submits this script from this folder, once."""
    if isinstance(commands, RestCommands):
        return KbExecutor(folder, script=script, send=commands.send, jobs=jobs, crash_point=crash_point)
    limit_s = commands.site.slurm.submit_timeout_s
    command = commands.argv("sbatch", ["--parsable", "@SCRIPT@"], timeout_s=limit_s)
    return KbExecutor(folder, script=script, sbatch=command, jobs=jobs, crash_point=crash_point)
