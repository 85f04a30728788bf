"""All settings of one place: each value, and whether a file says so or it is the default. Secrets are masked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from kbslurm.config import toml_file
from kbslurm.config.display import shown_secrets, shown_settings
from kbslurm.config.settings import Config
from kbslurm.config.site_families import Family
from kbslurm.domain.secret_names import PLACE_SECRETS, for_place
from kbslurm.domain.site import Site

Row = tuple[str, str, str]
# The part of kbslurm.toml, and the secrets, of each kind of place that is described there. `{}` is the place's name,
# where there may be several of a kind.
SECTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "local": ("daemon.local.", ()),
    "github": ("github.", ("GITHUB_TOKEN", "KBSLURM_RUN_KEY")),
    "modal": ("modal.", ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET")),
    "ray": ("ray.{}.", PLACE_SECRETS),
}
# Settings of a section that have nothing to do with running there.
APART = ("github.client_id", "github.oauth_url", "github.oauth_api_url")


def site_rows(site: Site, family: Family) -> Iterator[Row]:
    """The settings of a cluster's file, with what it inherits."""
    for key, value in _leaves(dataclasses.asdict(site)):
        yield toml_file.dotted(key), _text(value), _origin(family, key)


def section_rows(config: Config, kind: str, place: str) -> Iterator[Row]:
    """The settings of a place that kbslurm.toml describes, and its secrets."""
    section, _ = SECTIONS[kind]
    yield from (row for row in shown_settings(config, section.format(place)) if row[0] not in APART)
    yield from shown_secrets(config, needed_secrets(kind, place))


def needed_secrets(kind: str, place: str) -> tuple[str, ...]:
    """The secrets that such a place needs."""
    return tuple(for_place(one, place) for one in SECTIONS[kind][1]) if kind in SECTIONS else ()


def policy_rows(config: Config, place: str) -> Iterator[Row]:
    """What the hosts' rules say of this place."""
    said = config.policy.places.get(place)
    known = None if config.file is None else toml_file.read(config.file)
    for name in ("role", "classes", "cost_per_gpu_hour"):
        where = ("policy", "places", place, name)
        line = None if known is None or where not in known.lines else known.line(where)
        origin = "default" if line is None else f"{config.file}:{line}"
        yield f"policy.places.{place}.{name}", _text(None if said is None else getattr(said, name)), origin


def _leaves(value: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*at, str(key)))
    else:
        yield at, value


def _origin(family: Family, key: tuple[str, ...]) -> str:
    """The line that says it. Amounts have no unit in the file's keys, which the site's fields carry."""
    name = key[-1].removesuffix("_s").removesuffix("_mb")
    spot = family.spots.get(key) or family.spots.get((*key[:-1], name))
    return "default" if spot is None or spot.line is None else f"{spot.file}:{spot.line}"


def _text(value: Any) -> str:
    match value:
        case None | "":
            return "none"
        case bool():
            return str(value).lower()
        case Mapping():
            return ", ".join(f"{key} = {_text(one)}" for key, one in value.items()) or "none"
        case list() | tuple() | set() | frozenset():
            return ", ".join(map(str, value)) or "none"
        case float():
            return f"{value:g}"
        case _:
            return str(value)
