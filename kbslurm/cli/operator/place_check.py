"""`kbslurm place check`: whether runs would work at a place, or at all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import lenient_configuration
from kbslurm.cli.output import printing
from kbslurm.cli.output.findings import print_findings
from kbslurm.domain.finding import Finding, failed
from kbslurm.errors import Invalid, KbslurmError

if TYPE_CHECKING:
    from kbslurm.config.settings import Config


def check(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The place's name, as in kbslurm place list.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every configured place.")] = False,
    as_json: Json = False,
) -> int:
    """Check a place, or all: PASS, CAUTION or FAIL, each with its remedy. Exit code 1 on a FAIL.

    It starts no run; kbslurm doctor --site NAME --live also checks a cluster's nodes by small jobs.
    """
    from kbslurm import wiring
    from kbslurm.cli.operator.place_kinds import named

    if (name is None) is not every:
        raise Invalid("which place?" if name is None else "--all excludes a name", hint="Pass a name, or --all.")
    config = lenient_configuration()
    chosen = list(wiring.kinds(config).items()) if name is None else [named(config, name)]
    if not chosen:
        raise Invalid("no place is configured", hint="kbslurm place init describes one.")
    found: list[Finding] = []
    with printing.progress(as_json) as tell:
        for place, kind in chosen:
            tell({"phase": f"checking {place}"})
            found += _found(config, place, kind)
    return print_findings(found, as_json, summed=True)


def _found(config: Config, place: str, kind: str) -> Iterator[Finding]:
    """What is found at one place. A place that can't even be looked at is a finding, too."""
    from kbslurm.cli.operator.doctor_secrets import secret_findings
    from kbslurm.cli.operator.place_kinds import KINDS
    from kbslurm.config.place_settings import needed_secrets

    secrets = list(secret_findings(config, needed_secrets(kind, place)))
    yield from (_at(place, one) for one in secrets)
    if any(one.grade == "FAIL" for one in secrets):
        return
    try:
        for one in KINDS[kind].findings(config, place):
            yield _at(place, one)
    except KbslurmError as error:
        yield failed(kind, error.message, error.hint or "Mend it, then check again.", where=place)


def _at(place: str, one: Finding) -> Finding:
    where = place if not one.where or one.where == place else f"{place} {one.where}"
    return dataclasses.replace(one, where=where)
