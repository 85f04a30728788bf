"""What `kbslurm config show` prints: every setting and where it came from, secrets masked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from kbslurm.config.secret_values import MASK, masked_url
from kbslurm.config.sections.kbslurm_toml import leaves
from kbslurm.config.settings import Config
from kbslurm.domain import placement
from kbslurm.domain.secret_names import SECRET_VARIABLES, of_ray


def shown(config: Config) -> Iterator[tuple[str, str, str]]:
    """Every setting as (key, value, where it came from), secrets masked."""
    yield "file", str(config.file or "none"), "the first one found" if config.file else "no kbslurm.toml found"
    for key, value in leaves(config):
        yield key, _as_text(value), config.origins.get(key, "default")
    for name in (*SECRET_VARIABLES, *(one for place in config.ray for one in of_ray(place))):
        found = config.secrets.get(name)
        said = "not set" if found is None else masked_url(found.reveal()) if name == "DATABASE_URL" else MASK
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
