"""`kbslurm ray`: runs on Ray clusters; see docs/overflow.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration
from kbslurm.cli.output import printing
from kbslurm.cli.output.findings import print_findings
from kbslurm.errors import Invalid, Misconfigured, NotFound

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.domain.finding import Finding


def check(
    place: Annotated[
        str | None, typer.Argument(metavar="PLACE", help="The cluster, by its name in the configuration.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Check the cluster, token, workers and the way back: PASS, CAUTION or FAIL, each with its remedy. Starts nothing;
    exit code 1 on a FAIL."""
    config = configuration()
    if not config.ray:
        raise Misconfigured(
            "no Ray cluster is configured", file=config.file, key="ray", fix="docs/overflow.md shows the lines."
        )
    if place is None and len(config.ray) == 1:
        (place,) = config.ray
    if place is None:
        raise Invalid("several Ray clusters are configured", hint=f"Name one of them: {', '.join(config.ray)}.")
    if place not in config.ray:
        raise NotFound("Ray cluster", place, known=list(config.ray))
    with printing.progress(as_json) as tell:
        tell({"phase": f"checking {config.ray[place].url}"})
        found = ray_findings(config, place)
    return print_findings(found, as_json, summed=True)


def ray_findings(config: Config, place: str) -> list[Finding]:
    """What there is to say of this cluster; starts nothing."""
    from kbslurm import wiring
    from kbslurm.backends.ray.backend import RayBackend
    from kbslurm.backends.ray.check import findings
    from kbslurm.domain.secret_names import of_ray

    backend = wiring.ray_place(config, place).backend
    assert isinstance(backend, RayBackend)
    try:
        return list(findings(backend, wiring.ray_key(config, place), of_ray(place), config.ray[place]))
    finally:
        backend.close()
