"""All sections of kbslurm.toml as one value, checks across them, and their JSON schema."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kbslurm.config import toml_file, toml_schema
from kbslurm.config.sections.daemon import DaemonSection
from kbslurm.config.sections.discord import DiscordSection
from kbslurm.config.sections.github import GithubSection
from kbslurm.config.sections.modal import ModalSection
from kbslurm.config.sections.oidc import OidcSection
from kbslurm.config.sections.policy import PolicySection
from kbslurm.config.sections.ray import RAY_PLACES, RaySection
from kbslurm.config.sections.server import ServerSection
from kbslurm.config.sections.sites import SitesSection
from kbslurm.errors import Misconfigured


@dataclass(frozen=True, kw_only=True)
class KbslurmToml:
    """kbslurm's configuration."""

    server: ServerSection = field(default_factory=ServerSection)
    daemon: DaemonSection = field(default_factory=DaemonSection)
    policy: PolicySection = field(default_factory=PolicySection)
    discord: DiscordSection = field(default_factory=DiscordSection)
    github: GithubSection = field(default_factory=GithubSection)
    oidc: OidcSection = field(default_factory=OidcSection)
    modal: ModalSection = field(default_factory=ModalSection)
    ray: Mapping[str, RaySection] = field(default_factory=dict, metadata=RAY_PLACES)
    sites: SitesSection = field(default_factory=SitesSection)


def check_addresses(told: KbslurmToml, file: toml_file.TomlFile) -> None:
    """Each listener needs its own address, or the last one to start would fail."""
    taken: dict[str, str] = {}
    for key, address in (
        ("server.listen", told.server.listen),
        ("server.metrics", told.server.metrics),
        ("daemon.metrics", told.daemon.metrics),
    ):
        if not address or address.endswith(":0"):
            continue
        if address in taken:
            raise Misconfigured(
                f"{address} is already used by {taken[address]}",
                file=file.path,
                line=file.line(path_of(key)),
                key=key,
                fix="Give each its own port.",
            )
        taken[address] = key


def check_reached(told: KbslurmToml, file: toml_file.TomlFile) -> None:
    """Whoever listens beyond this machine says under which names: pages and sign-in build addresses from the Host."""
    server = told.server
    if server.public_url or server.allowed_hosts or _is_loopback(server.listen):
        return
    raise Misconfigured(
        f"the service listens on {server.listen} without saying under which address others reach it",
        file=file.path,
        line=file.line(path_of("server.listen")),
        key="server.listen",
        fix='Set public_url = "https://…" under [server], or allowed_hosts = ["…"].',
    )


def _is_loopback(listen: str) -> bool:
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return host in ("", "localhost") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def schema() -> dict[str, Any]:
    """The JSON schema of kbslurm.toml."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kbslurm",
        **toml_schema.schema_of(KbslurmToml),
    }


def leaves(table: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting below this table, as (dotted key, value)."""
    for one in dataclasses.fields(table):
        value = getattr(table, one.name)
        if dataclasses.is_dataclass(value) and "reads" not in one.metadata:
            yield from leaves(value, f"{above}{one.name}.")
        elif not above and one.metadata:  # places by their names, each a table
            for name, place in value.items():
                yield from leaves(place, f"{one.name}.{name}.")
        elif above:
            yield f"{above}{one.name}", value


def path_of(key: str) -> tuple[str, ...]:
    """The parts of a dotted key."""
    return tuple(key.split("."))
