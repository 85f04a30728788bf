"""The first lines of a Ray place for kbslurm.toml: from what a running cluster offers, or for one yet to be started.
Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kbslurm.backends.ray.pool_check import Node
from kbslurm.config.sections.ray_pool import Provider

FEW = 4
ACCELERATOR = "accelerator_type:"
A_LITTLE = 0.001  # of what Ray itself says of a node's accelerator: a mark, not an amount
_OF_RAY = re.compile(r"CPU|GPU|memory|object_store_memory|node:.*|accelerator_type:.*|.*_group_.*")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_EXAMPLES: Mapping[Provider, Mapping[str, str]] = {
    "aws": {"region": "eu-north-1", "head": "m7i.large", "machine": "p5.4xlarge"},
    "gcp": {"region": "europe-west4", "head": "n2-standard-4", "machine": "a3-highgpu-1g"},
    "azure": {"region": "northeurope", "head": "Standard_D4s_v5", "machine": "Standard_NC40ads_H100_v5"},
    "local": {"head": "10.0.0.1"},
}


@dataclass(frozen=True, kw_only=True)
class Offered:
    """A GPU type as it goes into the file: what a run asks Ray for, and how many of them there are."""

    name: str
    num_gpus: float = 1
    resources: Mapping[str, float] = field(default_factory=dict)
    there: int = 0

    @property
    def slots(self) -> int:
        """How many runs may be open there if nobody says: few, since others may need the cluster, too."""
        return min(self.there, FEW) or FEW


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the file is to say. `provider`: that of a cluster to be started; None where one runs already."""

    name: str
    url: str
    service_url: str
    gpus: Sequence[Offered]
    provider: Provider | None = None
    region: str = ""
    machine: str = ""
    most: int = FEW
    preemptible: bool = False


def offered_by(nodes: Sequence[Node]) -> list[Offered]:
    """The GPU types of a running cluster: by what Ray says of a node's accelerator, else by its GPUs' own resource."""
    found: dict[str, Offered] = {}
    for node in nodes:
        for kind in () if node.is_head else _of_node(node):
            known = found.get(kind.name)
            there = kind.there + (known.there if known else 0)
            found[kind.name] = Offered(name=kind.name, num_gpus=kind.num_gpus, resources=kind.resources, there=there)
    return [found[name] for name in sorted(found)]


def _of_node(node: Node) -> Iterator[Offered]:
    gpus = int(node.resources.get("GPU", 0))
    own = [name for name in node.resources if not _OF_RAY.fullmatch(name)]
    marks = [name for name in node.resources if name.startswith(ACCELERATOR)]
    if gpus and marks:
        for mark in marks:
            yield Offered(name=_name(mark.removeprefix(ACCELERATOR)), resources={mark: A_LITTLE}, there=gpus)
    elif gpus and not own:
        yield Offered(name="GPU", there=gpus)
    else:
        for name in own:
            if there := int(node.resources[name]):
                yield Offered(name=_name(name), num_gpus=1 if gpus else 0, resources={name: 1}, there=there)


def _name(text: str) -> str:
    """As boards call a GPU type."""
    return _NOT_IN_NAMES.sub("-", text).strip("_.-") or "GPU"


def toml_of(wishes: Wishes) -> str:
    """The tables, to be put below what kbslurm.toml has; a comment with a `?` is at each guess."""
    return "\n".join(_lines(wishes)) + "\n"


def _lines(wishes: Wishes) -> Iterator[str]:
    place = f"ray.{_key(wishes.name)}"
    yield f"[{place}]"
    yield f"url = {_text(wishes.url)}"
    yield f"service_url = {_text(wishes.service_url)}"
    for gpu in wishes.gpus:
        yield f"[{place}.gpus.{_key(gpu.name)}]"
        yield f"num_gpus = {gpu.num_gpus:g}"
        if gpu.resources:
            inner = ", ".join(f"{_key(name)} = {amount:g}" for name, amount in gpu.resources.items())
            yield f"resources = {{ {inner} }}"
        there = f"{gpu.there} there; " if gpu.there else ""
        yield f"slots = {gpu.slots}  # ? {there}how many runs may be open at once"
    if wishes.provider is not None:
        yield from _pool(place, wishes, wishes.provider)


def _pool(place: str, wishes: Wishes, provider: Provider) -> Iterator[str]:
    example = _EXAMPLES[provider]
    own = provider == "local"
    yield ""
    yield f"[{place}.pool]"
    yield f"provider = {_text(provider)}"
    if not own:
        yield f"region = {_text(wishes.region or example['region'])}{'' if wishes.region else '  # ?'}"
    if provider == "gcp":
        yield f"zones = [{_text((wishes.region or example['region']) + '-a')}]  # ?"
    if provider in ("gcp", "azure"):
        what = "the project" if provider == "gcp" else "the resource group"
        yield f'project = "kernels"  # ? {what}'
    if not own:
        yield "idle_minutes = 10"
    yield 'key_file = "run-key"  # ? the file with the run key, for the nodes'
    yield f"[{place}.pool.head]"
    yield f"machine = {_text(example['head'])}  # ?"
    if provider == "gcp":
        yield 'image = "projects/debian-cloud/global/images/family/debian-12"  # ?'
    if provider == "azure":
        yield 'image = "microsoft-dsvm:ubuntu-2204:2204-gen2:latest"  # ?'
    for gpu in wishes.gpus[:1] if own else wishes.gpus:
        yield f"[{place}.pool.workers.{_key(_name(gpu.name).lower().replace('.', '-'))}]"
        yield f"gpu = {_text(gpu.name)}"
        if own:
            yield 'hosts = ["10.0.0.11", "10.0.0.12"]  # ? their addresses'
            continue
        yield f"machine = {_text(wishes.machine or example['machine'])}{'' if wishes.machine else '  # ?'}"
        yield f"max = {wishes.most}"
        if wishes.preemptible:
            yield "preemptible = true"


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _text(text)


def _text(text: str) -> str:
    """A string of TOML, which reads JSON's."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
