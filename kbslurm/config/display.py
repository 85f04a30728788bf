"""What `kbslurm config show` prints: every setting and where it came from, secrets masked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kbslurm.config.secret_values import MASK, Secrets, masked_url
from kbslurm.config.sections.kbslurm_toml import leaves
from kbslurm.config.settings import Config
from kbslurm.domain import placement
from kbslurm.domain.secret_names import named_in, of_ray


def shown(config: Config) -> Iterator[tuple[str, str, str]]:
    """Every setting as (key, value, where it came from), secrets masked."""
    yield "file", str(config.file or "none"), "the first one found" if config.file else "no kbslurm.toml found"
    for key, value in leaves(config):
        yield key, _as_text(value), config.origins.get(key, "default")
    of_places = (one for place in config.ray for one in of_ray(place))
    yield from shown_secrets(config, dict.fromkeys((*named_in(config.secrets), *of_places)))


def shown_settings(config: Config, *prefixes: str) -> Iterator[tuple[str, str, str]]:
    """The settings whose keys begin so, in the same form."""
    for key, value in leaves(config):
        if key.startswith(prefixes):
            yield key, _as_text(value), config.origins.get(key, "default")


def shown_secrets(config: Config, names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """These secrets, masked, and where each comes from. No command is run for that."""
    for name in names:
        source = config.secrets.sources.get(name) if isinstance(config.secrets, Secrets) else None
        told = name in config.secrets
        url = told and name == "DATABASE_URL" and (source is None or source.way != "command")
        said = "not set" if not told else masked_url(config.secrets[name].reveal()) if url else MASK
        yield name, said, config.origins.get(name, "default")


def _as_text(value: Any) -> str:
    match value:
        case Mapping():
            return ", ".join(f"{key} = {_as_text(one)}" for key, one in value.items()) or "none"
        case tuple():
            return ", ".join(map(str, value)) or "none"
        case None | "":
            return "none"
        case bool():
            return str(value).lower()
        case placement.Overflow():
            return str(value)
        case _ if dataclasses.is_dataclass(value):
            said = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
            return "{ " + ", ".join(f"{key} = {_as_text(one)}" for key, one in said.items()) + " }"
        case _:
            return f"{value:g}" if isinstance(value, float) else str(value)
