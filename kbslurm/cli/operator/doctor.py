"""`kbslurm doctor`: check this installation or a site. Each finding says what to do."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import lenient_configuration
from kbslurm.cli.operator.doctor_local import local_findings
from kbslurm.cli.operator.doctor_site import site_findings
from kbslurm.cli.output import printing
from kbslurm.cli.output.findings import print_findings
from kbslurm.errors import Invalid


def doctor(
    site: Annotated[str | None, typer.Option("--site", help="Check this cluster: a name, or a .toml file.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Submit one small job per GPU type to check its node.")] = False,
    wait_s: Annotated[float, typer.Option("--wait", min=1, help="Seconds to wait for such a job to start.")] = 300.0,
    as_json: Json = False,
) -> int:
    """Check this installation or a cluster: PASS, CAUTION or FAIL, each with its remedy. Exit code 1 on a FAIL."""
    if live and site is None:
        raise Invalid("--live needs --site", hint="Name the cluster: kbslurm doctor --site NAME --live")
    with printing.progress(as_json) as tell:
        tell({"phase": "looking" if not live else "waiting for a node of each kind"})
        findings = (
            local_findings(lenient_configuration()) if site is None else site_findings(site, live=live, wait_s=wait_s)
        )
    return print_findings(findings, as_json, summed=True)
