"""The file from which Ray's launcher starts a place's cluster, and its autoscaler keeps it. Pure."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from kbslurm.config.sections.ray import RaySection
from kbslurm.config.sections.ray_pool import HEAD, RayPoolSection, RayWorkersSection
from kbslurm.errors import Misconfigured

KIND_LABEL = "kbslurm.pool"  # on each worker: its kind
FILE_LABEL = "kbslurm.pool-file"  # on the head: what the cluster was started from
MADE_BY = "# Written by `kbslurm ray pool "
TOKEN_FILE = "~/.ray/auth_token"
VENV = "~/.kbslurm/venv"
KEY_FILE = "~/.kbslurm/run-key"  # where it arrives on a node; from there it goes to where the place's jobs look for it
PORT = 6379
_START = f"RAY_AUTH_MODE=token {VENV}/bin/ray start"
OF_A_NODE = ("cryptography>=45",)  # what a job there needs beside the standard library
_CLIENTS: Mapping[str, tuple[str, ...]] = {  # what Ray needs on the head to start machines
    "aws": ("boto3>=1.26",),
    "gcp": ("google-api-python-client>=2", "google-auth>=2", "cryptography"),
    "azure": (
        *("azure-core", "azure-identity", "azure-mgmt-compute", "azure-mgmt-network", "azure-mgmt-resource"),
        *("azure-common", "msrest", "msrestazure"),
    ),
    "local": (),
}


class Bare(str):
    """Text that goes into the file as it is: a place's name, in a comment."""

    __slots__ = ()


def cluster_file(place: str, section: RaySection, pool: RayPoolSection) -> str:
    """Ray's YAML for this place's pool. Misconfigured if workers offer a type that the place doesn't have."""
    gpus = asked(section)
    for name, told in pool.workers.items():
        if told.gpu not in gpus:
            known = ", ".join(sorted(gpus)) or "none"
            raise Misconfigured(
                f"workers {name} offer {told.gpu}, which isn't among the GPU types of ray.{place} ({known})",
                key=f"ray.{place}.pool.workers.{name}.gpu",
                fix=f"Add {told.gpu} below [ray.{place}.gpus], or correct it here.",
            )
    plain = _rendered(place, pool, gpus, section.key_file, {})
    return _rendered(place, pool, gpus, section.key_file, {FILE_LABEL: hashlib.sha256(plain.encode()).hexdigest()[:16]})


def asked(section: RaySection) -> Mapping[str, Mapping[str, float]]:
    """What one run of each of the place's GPU types asks Ray for, by resource."""
    return {
        name: ({"GPU": gpu.num_gpus} if gpu.num_gpus else {}) | dict(gpu.resources)
        for name, gpu in section.gpus.items()
    }


def digest_in(text: str) -> str:
    """What a cluster that was started from this file says of it, by FILE_LABEL."""
    found = re.search(rf"{re.escape(FILE_LABEL)}\W+([0-9a-f]{{16}})", text)
    return found[1] if found else ""


def _rendered(
    place: str,
    pool: RayPoolSection,
    gpus: Mapping[str, Mapping[str, float]],
    key_file: str,
    labels: Mapping[str, str],
) -> str:
    values = {
        "place": Bare(place),
        "cluster": f"kbslurm-{place}",
        "most": most_workers(pool),
        "pool": pool,
        "provider": _provider(pool),
        "head": HEAD,
        "types": {} if pool.provider == "local" else _types(pool, gpus, key_file, labels),
        "mounts": {TOKEN_FILE: pool.token_file} | ({KEY_FILE: pool.key_file} if pool.key_file else {}),
        "setup": _setup(pool),
        "head_setup": [*_clients(pool), *pool.head.setup],
        "worker_setup": _worker_setup(
            pool, next(iter(pool.workers.values())) if pool.provider == "local" else None, key_file
        ),
        "head_start": [f"{VENV}/bin/ray stop", _head_start(pool, labels)],
        "none_of": lambda commands: Bare("" if commands else " []"),
        "worker_start": [f"{VENV}/bin/ray stop", _worker_start(pool, gpus)],
    }
    return _template().render(values)


def most_workers(pool: RayPoolSection) -> int:
    """How many workers there may be in all."""
    total = sum(most_of(told) for told in pool.workers.values())
    return total if pool.max is None else min(pool.max, total)


def most_of(told: RayWorkersSection) -> int:
    """How many workers of this kind there may be."""
    return len(told.hosts) if told.max is None else told.max


def least_of(told: RayWorkersSection) -> int:
    """How many workers of this kind are kept running."""
    return len(told.hosts) or told.min


def offered(told: RayWorkersSection, asked: Mapping[str, float]) -> Mapping[str, int]:
    """The resources of such a worker: enough for as many runs as it takes at once. Ray's launcher takes whole numbers
    only."""
    found = {name: math.ceil(amount * told.runs) for name, amount in asked.items() if amount}
    return found if told.cpus is None else {"CPU": told.cpus, **found}


def _provider(pool: RayPoolSection) -> Mapping[str, Any]:
    zones = ",".join(pool.zones)
    match pool.provider:
        case "aws":
            told = {"region": pool.region, "availability_zone": zones, "cache_stopped_nodes": False}
        case "gcp":
            told = {"region": pool.region, "availability_zone": zones, "project_id": pool.project}
        case "azure":
            told = {"location": pool.region, "resource_group": pool.project, "availability_zone": zones or "auto"}
        case "local":
            hosts = [host for workers in pool.workers.values() for host in workers.hosts]
            told = {"head_ip": pool.head.machine, "worker_ips": hosts}
    return {"type": pool.provider, **{key: value for key, value in told.items() if value != ""}}


def _types(
    pool: RayPoolSection, gpus: Mapping[str, Mapping[str, float]], key_file: str, labels: Mapping[str, str]
) -> Mapping[str, Mapping[str, Any]]:
    """The kinds of machines. The head has no cores to give away, so that no submission ever runs beside it."""
    head = pool.head
    found: dict[str, dict[str, Any]] = {
        HEAD: {
            "resources": {"CPU": 0, "GPU": 0},
            "max_workers": 0,
            "labels": labels,
            "node_config": _machine(pool, head.machine, head.image, head.node, preemptible=False),
        }
    }
    for name, told in pool.workers.items():
        found[name] = {
            "min_workers": told.min,
            "max_workers": told.max,
            "resources": offered(told, gpus[told.gpu]),
            "labels": {KIND_LABEL: name},
            "node_config": _machine(
                pool, told.machine, told.image or head.image, told.node, preemptible=told.preemptible
            ),
        }
        if told.setup:  # these replace the common ones
            found[name]["worker_setup_commands"] = [*_setup(pool), *_worker_setup(pool, told, key_file)]
    return found


def _machine(
    pool: RayPoolSection, machine: str, image: str, more: Mapping[str, Any], *, preemptible: bool
) -> Mapping[str, Any]:
    """One machine in its provider's own words."""
    if pool.provider == "aws":
        spot: dict[str, Any] = {"InstanceMarketOptions": {"MarketType": "spot"}} if preemptible else {}
        return {"InstanceType": machine, **({"ImageId": image} if image else {}), **spot, **more}
    if pool.provider == "gcp":
        disk = {"boot": True, "autoDelete": True, "type": "PERSISTENT"}
        schedule = [{"preemptible": True}] if preemptible else [{"onHostMaintenance": "TERMINATE"}]
        return {
            "machineType": machine,
            "disks": [{**disk, "initializeParams": {"diskSizeGb": 100, "sourceImage": image}}],
            "scheduling": schedule,
            **more,
        }
    publisher, offer, sku, version = image.split(":")
    told = {"imagePublisher": publisher, "imageOffer": offer, "imageSku": sku, "imageVersion": version}
    priority = {"priority": "Spot"} if preemptible else {}
    return {"azure_arm_parameters": {"vmSize": machine, **told, **priority, **more}}


def _setup(pool: RayPoolSection) -> list[str]:
    """On every node: Ray, in an environment of its own that sees what the image has; and secrets for its user alone."""
    wanted = shlex.join([f"ray[default]=={pool.ray_version}", *OF_A_NODE])
    version = re.escape(pool.ray_version)
    make = f"python3 -m venv --system-site-packages {VENV}"
    fetch = "sudo -n apt-get update && sudo -n apt-get install -y python3-venv"
    line = f"export PATH={VENV}/bin:$PATH"
    return [
        f"test -x {VENV}/bin/pip || {make} || ({fetch} && {make})",
        f"grep -qsxF {shlex.quote(line)} ~/.bashrc || echo {shlex.quote(line)} >> ~/.bashrc",
        f"{VENV}/bin/ray --version 2>/dev/null | grep -qE 'version {version}$' || {VENV}/bin/pip install {wanted}",
        f"chmod 0400 {TOKEN_FILE}{f' {KEY_FILE}' if pool.key_file else ''}",
    ]


def _clients(pool: RayPoolSection) -> list[str]:
    packages = _CLIENTS[pool.provider]
    return [f"{VENV}/bin/pip install {shlex.join(packages)}"] if packages else []


def _worker_setup(pool: RayPoolSection, told: RayWorkersSection | None, key_file: str) -> list[str]:
    """On every worker: the run key, for its user alone, and what the site adds. Without a key it doesn't join."""
    folder = KEY_FILE.rpartition("/")[0]
    get = f"rm -f {KEY_FILE} && (umask 377; {pool.key_command} > {KEY_FILE})"
    got = [f"mkdir -p {folder} && chmod 0700 {folder} && {get}"] if pool.key_command else []
    there = shlex.quote(key_file)
    put = f"install -D -m 0400 {KEY_FILE} {there} 2>/dev/null"
    as_root = f'sudo -n install -D -m 0400 -o "$(id -u)" -g "$(id -g)" {KEY_FILE} {there}'
    return [*got, f"test -s {KEY_FILE} && ({put} || {as_root})", *pool.setup, *(told.setup if told else ())]


def _head_start(pool: RayPoolSection, labels: Mapping[str, str]) -> str:
    """Its pages and its API listen on loopback: a proxy with TLS, or SSH, is the way to them."""
    told = [f"--port={PORT}", "--dashboard-host=127.0.0.1", "--autoscaling-config=~/ray_bootstrap_config.yaml"]
    if pool.provider == "local":
        told += ["--num-cpus=0", "--num-gpus=0", *(f"--labels={name}={value}" for name, value in labels.items())]
    redis = f"RAY_REDIS_ADDRESS={pool.redis} " if pool.redis else ""
    return f"ulimit -n 65536; {redis}{_START} --head {' '.join(told)} --disable-usage-stats"


def _worker_start(pool: RayPoolSection, gpus: Mapping[str, Mapping[str, float]]) -> str:
    words = [f"--address=$RAY_HEAD_IP:{PORT}"]
    if pool.provider == "local":
        ((name, told),) = pool.workers.items()
        words += by_hand(told, gpus[told.gpu], kind=name)
    return f"ulimit -n 65536; {_START} {' '.join(words)} --disable-usage-stats"


def by_hand(told: RayWorkersSection, asked: Mapping[str, float], *, kind: str) -> list[str]:
    """The words of `ray start` on a machine that no provider started, as shell text."""
    found = dict(offered(told, asked))
    words = [f"--num-cpus={found.pop('CPU')}"] if "CPU" in found else []
    words += [f"--num-gpus={found.pop('GPU')}"] if "GPU" in found else []
    words += [f"--resources={shlex.quote(json.dumps(found, separators=(',', ':')))}"] if found else []
    return [*words, f"--labels={KIND_LABEL}={kind}"]


def _yaml(value: object) -> str:
    """One value as JSON, which YAML reads as the same value on one line."""
    if isinstance(value, Bare):
        return value
    if isinstance(value, jinja2.Undefined):
        raise jinja2.UndefinedError("the template uses a value that is missing")
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


@cache
def _template() -> jinja2.Template:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        finalize=_yaml,
        autoescape=False,  # noqa: S701 - it is no HTML; `finalize` quotes every value
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    ).get_template("pool.yaml.j2")
