"""[ray.NAME.pool]: the cluster that Ray's own launcher starts, and between which bounds its autoscaler keeps it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kbslurm.domain import contest
from kbslurm.errors import Invalid

Provider = Literal["aws", "gcp", "azure", "local"]

HEAD = "head"

_NODE_TYPE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")  # it is also the value of a label of Ray's
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")  # YAML forbids or folds them


def _line(text: str) -> str:
    """One line of text."""
    if _CONTROL.search(text):
        raise Invalid("it contains a line break or another control character", hint="Write it in one line.")
    return text


def _lines(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        _line(text)
    return texts


def _hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    for host in hosts:
        _host(host)
    if len(set(hosts)) != len(hosts):
        raise Invalid("a host is listed twice", hint="List each machine once.")
    return hosts


def _host(text: str) -> str:
    if text and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,252}", text):
        raise Invalid(f"{text!r} isn't an address", hint='Write "10.0.0.7" or "node7.cluster.example.edu".')
    return text


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if text and not (host and port.isdecimal() and 0 < int(port) < 65536):
        raise Invalid(f"{text!r} isn't a valid address", hint='Write "10.0.0.5:6379".')
    return _host(text)


def _gpu(text: str) -> str:
    return contest.gpu_name(text) if text else text


def _version(text: str) -> str:
    if not re.fullmatch(r"[0-9]+(?:\.[0-9]+){1,2}", text):
        raise Invalid(f"{text!r} isn't a release of Ray", hint='Write "2.60.0".')
    return text


def _node(raw: Any) -> Mapping[str, Any]:
    """A table that is passed on to the provider as it is."""
    if not isinstance(raw, Mapping):
        raise Invalid("must be a table", hint='Write it as node = { SubnetIds = ["subnet-1"] }.')
    _plain(raw)
    return dict(raw)


def _plain(value: Any) -> None:
    """Refuse what can't be written into YAML and read back as the same."""
    match value:
        case Mapping():
            for key, one in value.items():
                _line(key)
                _plain(one)
        case list():
            for one in value:
                _plain(one)
        case str():
            _line(value)
        case bool() | int():
            pass
        case float() if abs(value) < 1e15 and (value == 0 or abs(value) >= 1e-4):  # YAML reads 1e+22 as text
            pass
        case _:
            raise Invalid(f"{value!r} can't be passed on to the provider", hint="Write text, numbers, lists or tables.")


_AS_IT_IS = {"reads": _node, "schema": {"type": "object"}}


@dataclass(frozen=True, kw_only=True)
class RayHeadSection:
    """The head. It runs no submissions."""

    machine: str = field(
        default="",
        metadata={
            "doc": "The provider's name of its machine type; with provider = local: its address.",
            "check": _line,
        },
    )
    image: str = field(
        default="",
        metadata={
            "doc": "The disk image: an AMI, GCP's path of an image, or Azure's publisher:offer:sku:version.",
            "check": _line,
        },
    )
    node: Mapping[str, Any] = field(
        default_factory=dict, metadata={"doc": "More of the provider's own settings for this machine.", **_AS_IT_IS}
    )
    setup: tuple[str, ...] = field(default=(), metadata={"doc": "Commands that set it up.", "check": _lines})


@dataclass(frozen=True, kw_only=True)
class RayWorkersSection:
    """Workers of one kind."""

    gpu: str = field(default="", metadata={"doc": "Which of the place's GPU types they offer.", "check": _gpu})
    runs: int = field(default=1, metadata={"doc": "How many runs one machine takes at once.", "least": 1, "most": 64})
    min: int = field(default=0, metadata={"doc": "At least this many are kept running.", "least": 0, "most": 10_000})
    max: int | None = field(
        default=None,
        metadata={
            "doc": "At most this many are started; with provider = local: all hosts.",
            "least": 0,
            "most": 10_000,
        },
    )
    preemptible: bool = field(
        default=False,
        metadata={"doc": "Cheaper machines that the provider may take back; their runs are then repeated elsewhere."},
    )
    machine: str = field(default="", metadata={"doc": "The provider's name of their machine type.", "check": _line})
    image: str = field(
        default="", metadata={"doc": "The disk image, as for the head; empty: the head's.", "check": _line}
    )
    hosts: tuple[str, ...] = field(
        default=(), metadata={"doc": "With provider = local: the machines' addresses.", "check": _hosts}
    )
    cpus: int | None = field(
        default=None, metadata={"doc": "How many cores Ray may give away on each; default: what it finds.", "least": 0}
    )
    node: Mapping[str, Any] = field(
        default_factory=dict, metadata={"doc": "More of the provider's own settings for them.", **_AS_IT_IS}
    )
    setup: tuple[str, ...] = field(
        default=(), metadata={"doc": "Commands that set them up, after those of the pool.", "check": _lines}
    )


def _workers(workers: Mapping[str, RayWorkersSection]) -> Mapping[str, RayWorkersSection]:
    for name, told in workers.items():
        if not _NODE_TYPE.fullmatch(name):
            raise Invalid(
                f"{name!r} isn't a valid name for workers", hint="Use letters and digits, and _ - in between."
            )
        if not told.gpu:
            raise Invalid(f"{name} doesn't say which GPU type its machines offer", hint='Write gpu = "H100".')
        if told.max is not None and told.min > told.max:
            raise Invalid(f"{name} has min = {told.min} and max = {told.max}", hint="Write a max of at least min.")
        if name == HEAD:
            raise Invalid(f"workers can't be called {HEAD}", hint="That is the head's name; choose another.")
    return dict(workers)


@dataclass(frozen=True, kw_only=True)
class RayPoolSection:
    """The cluster that `ray up` starts from the file that `kbslurm ray pool` writes. Secrets stand in neither: they are
    copied to the nodes from files, or printed there by a command.
    """

    provider: Provider = field(metadata={"doc": "Whose machines they are; local: your own, reached by SSH."})
    region: str = field(default="", metadata={"doc": "The provider's region (Azure: location).", "check": _line})
    zones: tuple[str, ...] = field(
        default=(), metadata={"doc": "The zones in which to start machines, in this order.", "check": _lines}
    )
    project: str = field(default="", metadata={"doc": "GCP's project, or Azure's resource group.", "check": _line})
    idle_minutes: float = field(
        default=5.0,
        metadata={"doc": "A worker beyond min is stopped when idle for this long.", "least": 1, "most": 1e6},
    )
    max: int | None = field(
        default=None, metadata={"doc": "At most this many workers in all; default: the sum of their max.", "least": 0}
    )
    head: RayHeadSection = field(default_factory=RayHeadSection, metadata={"doc": "The head."})
    workers: Mapping[str, RayWorkersSection] = field(
        default_factory=dict, metadata={"doc": "The workers, by kind.", "check": _workers}
    )
    ssh_user: str = field(default="ubuntu", metadata={"doc": "The user on the nodes.", "check": _line})
    ssh_key: str = field(default="", metadata={"doc": "The private key for SSH; empty: Ray makes one.", "check": _line})
    ray_version: str = field(
        default="2.60.0", metadata={"doc": "The release of Ray that the nodes get.", "check": _version}
    )
    redis: str = field(
        default="",
        metadata={"doc": "HOST:PORT of a Redis that remembers the cluster when its head restarts.", "check": _address},
    )
    token_file: str = field(
        default="~/.ray/auth_token",
        metadata={"doc": "The file with Ray's token on the machine where you type `ray up`.", "check": _line},
    )
    key_file: str = field(
        default="",
        metadata={"doc": "The file with the place's run key there; it is copied to the nodes.", "check": _line},
    )
    key_command: str = field(
        default="",
        metadata={
            "doc": "Instead: a command that prints the run key on a worker, from a secret store.",
            "check": _line,
        },
    )
    setup: tuple[str, ...] = field(
        default=(), metadata={"doc": "Commands that set up each worker, such as fetching its image.", "check": _lines}
    )


def check_pool(pool: RayPoolSection) -> RayPoolSection:
    """Refuse what the provider would refuse after minutes, or what would start a cluster that can take no run."""
    if bool(pool.key_file) == bool(pool.key_command):
        raise Invalid(
            "the pool doesn't say where its nodes get the run key",
            hint='Write key_file = "run-key", or key_command = "…", which prints it there; not both.',
        )
    if not pool.workers:
        raise Invalid("the pool has no workers", hint='Write [….pool.workers.NAME] with gpu = "H100", machine and max.')
    if not pool.head.machine:
        what = "its address" if pool.provider == "local" else "the provider's name of its machine type"
        raise Invalid("the pool has no head", hint=f'Write head = {{ machine = "…" }}: {what}.')
    (_check_own_machines if pool.provider == "local" else _check_rented)(pool)
    return pool


def _check_own_machines(pool: RayPoolSection) -> None:
    """Ray knows one kind of node there, which it keeps running."""
    if len(pool.workers) != 1:
        raise Invalid("your own machines must be workers of one kind: Ray's launcher knows no other", hint=_BY_HAND)
    ((name, told),) = pool.workers.items()
    if not told.hosts:
        raise Invalid(f"{name} has no machines", hint='Write hosts = ["10.0.0.11", "10.0.0.12"].')
    extra = [key for key in ("machine", "image", "min", "max", "preemptible", "node") if getattr(told, key)]
    extra += [key for key in ("region", "zones", "project") if getattr(pool, key)]
    if extra:
        raise Invalid(
            f"{extra[0]} means nothing for your own machines: all of them are kept running",
            hint=f"Leave {' and '.join(extra)} out.",
        )


def _check_rented(pool: RayPoolSection) -> None:
    if not pool.region:
        raise Invalid("the pool has no region", hint='Write region = "eu-north-1", as the provider names it.')
    if pool.provider == "gcp" and (not pool.project or len(pool.zones) != 1):
        raise Invalid("on GCP a pool needs a project and one zone", hint='Write project = "…" and zones = ["…-a"].')
    if pool.provider == "azure" and not pool.project:
        raise Invalid("on Azure a pool needs a resource group", hint='Write project = "…", its resource group.')
    for name, told in pool.workers.items():
        if told.hosts:
            raise Invalid(f"{name} lists hosts, but {pool.provider} starts its machines", hint="Leave hosts out.")
        if not told.machine:
            raise Invalid(f"{name} has no machine type", hint='Write machine = "…", as the provider names it.')
        if told.max is None:
            raise Invalid(f"{name} doesn't say how many machines may be started", hint="Write max = 4.")
    for name, image in ((HEAD, pool.head.image), *((name, one.image) for name, one in pool.workers.items())):
        _check_image(pool.provider, name, image or pool.head.image)


def _check_image(provider: Provider, name: str, image: str) -> None:
    if provider == "gcp" and not image:
        raise Invalid(f"{name} has no image", hint='Write image = "projects/…/global/images/family/…".')
    if provider == "azure" and len([part for part in image.split(":") if part]) != 4:
        raise Invalid(f"{name} has no image", hint='Write image = "publisher:offer:sku:version".')


_BY_HAND = "Keep one kind in the pool, and add the others by hand: ray start --address=… --resources=…"
