"""`kbslurm up`: the daemon in the foreground, until SIGTERM or ^C."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.frame import app, configuration
from kbslurm.errors import EXIT_OK, Misconfigured


@app.command()
def up(
    once: Annotated[bool, typer.Option("--once", help="End when nothing is queued or open any more.")] = False,
    log_json: Annotated[bool, typer.Option("--log-json", help="One JSON object per line.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")] = False,
) -> int:
    """Run the daemon. Stopped by SIGTERM or ^C it leaves running jobs alone; the next start finds them again."""
    from kbslurm.daemon import run_daemon

    config = configuration()
    if not config.sites.use and not config.daemon.local.slots:
        raise Misconfigured(
            "no backend is configured, so nothing could run",
            fix="Name sites in kbslurm.toml ([sites] use), or give this machine [daemon.local] slots.",
        )
    run_daemon(config, once=once, log_json=log_json, verbose=verbose)
    return EXIT_OK
