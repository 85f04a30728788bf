"""The kinds of places: what there is to check at each and how it is shown. A new kind is one more entry in KINDS."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbslurm.config import place_settings, shared_folders
from kbslurm.config.place_settings import Row
from kbslurm.domain.finding import Finding
from kbslurm.errors import NotFound

if TYPE_CHECKING:
    from kbslurm.config.settings import Config


@dataclass(frozen=True, kw_only=True)
class Kind:
    """`rows`: the settings of such a place. `findings`: what a check finds at it; it starts no run."""

    rows: Callable[[Config, str], Iterable[Row]]
    findings: Callable[[Config, str], Iterable[Finding]]


def named(config: Config, name: str) -> tuple[str, str]:
    """The name and kind of the configured place with this name in any case, or NotFound with those that there are."""
    from kbslurm import wiring

    known = wiring.kinds(config)
    found = name if name in known else next((one for one in known if one.lower() == name.lower()), None)
    if found is None:
        hint = None if known else "No place is configured; kbslurm place init describes one."
        raise NotFound("place", name, known=sorted(known), hint=hint)
    return found, known[found]


def _site_rows(config: Config, name: str) -> Iterable[Row]:
    from kbslurm.config import sites

    file = sites.file_named(config.sites_dir or shared_folders.path("site-configs"), config.sites.use, name)
    assert file is not None
    return place_settings.site_rows(*sites.read(file))


def _site_findings(config: Config, name: str) -> Iterable[Finding]:
    from kbslurm.cli.operator.doctor_site import site_findings

    return site_findings(name, live=False, wait_s=0.0)


def _local_findings(config: Config, name: str) -> Iterable[Finding]:
    from kbslurm.cli.operator.doctor_local import isolation_findings, slots_findings, state_finding

    yield state_finding(config.state_dir)
    yield from slots_findings(config)
    yield from isolation_findings(config)


def _github_findings(config: Config, name: str) -> Iterable[Finding]:
    from kbslurm.cli.operator.github import github_findings

    return github_findings(config)


def _modal_findings(config: Config, name: str) -> Iterable[Finding]:
    from kbslurm.cli.operator.modal import modal_findings

    return modal_findings(config)


def _ray_findings(config: Config, name: str) -> Iterable[Finding]:
    from kbslurm.cli.operator.ray import ray_findings

    return ray_findings(config, name)


def _of_section(kind: str) -> Callable[[Config, str], Iterable[Row]]:
    return lambda config, name: place_settings.section_rows(config, kind, name)


KINDS: Mapping[str, Kind] = {
    "slurm": Kind(rows=_site_rows, findings=_site_findings),
    "local": Kind(rows=_of_section("local"), findings=_local_findings),
    "github": Kind(rows=_of_section("github"), findings=_github_findings),
    "modal": Kind(rows=_of_section("modal"), findings=_modal_findings),
    "ray": Kind(rows=_of_section("ray"), findings=_ray_findings),
}
