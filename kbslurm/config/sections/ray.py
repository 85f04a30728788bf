"""[ray.NAME]: runs on a Ray cluster, by its Jobs API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kbslurm.config import toml_file
from kbslurm.config.sections.checks import web_address
from kbslurm.config.sections.ray_pool import RayPoolSection, check_pool
from kbslurm.domain import contest
from kbslurm.errors import Invalid, Misconfigured

KEPT_APART = 2  # the isolation level from which a submission reaches neither Ray's ports nor its token
KEY_FILE = "/etc/kbslurm/run-key"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_DIGEST = re.compile(r"(?:sha256|tree):[0-9a-f]{64}")
_RESOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,100}")


def _resources(told: Mapping[str, float]) -> Mapping[str, float]:
    for name, amount in told.items():
        if not _RESOURCE.fullmatch(name) or name in ("CPU", "GPU", "memory", "object_store_memory"):
            raise Invalid(
                f"{name!r} isn't a valid custom resource",
                hint='Name one that the workers were started with, like { "H100" = 1 }; GPUs are num_gpus.',
            )
        if not 0 < amount <= 1_000_000:
            raise Invalid(f"{name} = {amount:g} isn't a valid amount", hint="Write a positive number.")
    return dict(told)


def _python(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_./+-]{1,300}", text):
        raise Invalid(f"{text!r} isn't a valid Python command", hint='Write "python3", or its whole path on the nodes.')
    return text


def _node_path(text: str) -> str:
    if not re.fullmatch(r"/[A-Za-z0-9_./+-]{1,300}", text):
        raise Invalid(f"{text!r} isn't a valid path on the nodes", hint=f'Write "{KEY_FILE}".')
    return text


def _image(text: str) -> str:
    if text and not re.fullmatch(r"/[A-Za-z0-9_./+-]{1,300}", text):
        raise Invalid(
            f"{text!r} isn't a valid path of an image on the nodes",
            hint='Write its whole path there, like "/opt/kbslurm/cuda.sif".',
        )
    return text


def _digest(text: str) -> str:
    if text and not _DIGEST.fullmatch(text):
        raise Invalid(
            f"{text!r} isn't the digest of an image",
            hint='Write "sha256:…" of a .sif file or "tree:…" of a directory, as kbslurm image verify prints it.',
        )
    return text


@dataclass(frozen=True, kw_only=True)
class RayGpuSection:
    """What a run on one GPU type asks Ray for."""

    num_gpus: float = field(default=1.0, metadata={"doc": "How many GPUs.", "least": 0, "most": 64})
    resources: Mapping[str, float] = field(
        default_factory=dict,
        metadata={"doc": "Custom resources of the workers with this GPU, and how much of each.", "check": _resources},
    )
    slots: int = field(default=4, metadata={"doc": "How many runs may be open at the same time.", "least": 1})
    memory_gb: float = field(
        default=0.0,
        metadata={"doc": "The most memory a run may use there; 0: as much as its problem allows.", "least": 0},
    )
    image: str = field(
        default="",
        metadata={"doc": "The Apptainer image on the nodes that runs are in; empty: the place's.", "check": _image},
    )
    image_digest: str = field(
        default="", metadata={"doc": "Its digest: a node with another image runs nothing.", "check": _digest}
    )
    vendor: Literal["nvidia", "amd", "none"] = field(
        default="nvidia", metadata={"doc": "Whose GPUs a container is shown; none: a run needs none."}
    )


def _ray_gpus(gpus: Mapping[str, RayGpuSection]) -> Mapping[str, RayGpuSection]:
    for gpu, asked in gpus.items():
        contest.gpu_name(gpu)
        if not asked.num_gpus and not asked.resources:
            raise Invalid(
                f"{gpu} asks Ray for nothing, so a run could start anywhere",
                hint=f'Give it num_gpus = 1, or resources = {{ "{gpu}" = 1 }}.',
            )
    return dict(gpus)


@dataclass(frozen=True, kw_only=True)
class RaySection:
    """A Ray cluster. Its secrets are RAY_NAME_TOKEN, the token of its API, and RAY_NAME_KEY, which its nodes hold
    too."""

    url: str = field(metadata={"doc": "The address of Ray's Jobs API (its dashboard).", "check": web_address})
    service_url: str = field(
        default="",
        metadata={
            "doc": "The address of this service as the nodes reach it; empty: server.public_url.",
            "check": web_address,
        },
    )
    gpus: Mapping[str, RayGpuSection] = field(
        default_factory=dict, metadata={"doc": "What a run asks for, by GPU type.", "check": _ray_gpus}
    )
    ca_file: Path | None = field(
        default=None,
        metadata={"doc": "The certificates that Ray's https address is held to; unset: the system's."},
    )
    python: str = field(
        default="python3",
        metadata={
            "doc": "The nodes' Python for the harness: 3.11 or newer, with cryptography and what problems import.",
            "check": _python,
        },
    )
    image: str = field(
        default="",
        metadata={
            "doc": "The Apptainer image on the nodes that runs are in; empty: the harness's own cage.",
            "check": _image,
        },
    )
    image_digest: str = field(
        default="", metadata={"doc": "Its digest: a node with another image runs nothing.", "check": _digest}
    )
    runtime: Literal["apptainer", "singularity", "auto", "none"] = field(
        default="apptainer",
        metadata={
            "doc": "What runs the image. auto: whichever of the two a node has, and the harness's own cage on a node "
            "with neither; none: always the own cage."
        },
    )
    key_file: str = field(
        default=KEY_FILE, metadata={"doc": "The file on the nodes that holds RAY_NAME_KEY.", "check": _node_path}
    )
    timeout_s: float = field(
        default=20.0, metadata={"doc": "How long a call of Ray's API may take.", "least": 1, "most": 300}
    )
    start_within_s: float = field(
        default=900.0,
        metadata={
            "doc": "How long a run may wait for a worker there. Ray itself fails what waits longer than its "
            "RAY_JOB_START_TIMEOUT_SECONDS, 900 by default.",
            "least": 10,
            "most": 86_400,
        },
    )
    lease_s: float = field(
        default=120.0,
        metadata={
            "doc": "A node that can't reach this service for so long ends its run, which is then tried again.",
            "least": 30,
            "most": 3_600,
        },
    )
    staff_only: bool = field(default=False, metadata={"doc": "Only the hosts' own submissions run there."})
    ranked: bool = field(
        default=True, metadata={"doc": "Leaderboard runs go there too; false: only tests, benchmarks and profiles."}
    )
    min_isolation: int = field(
        default=KEPT_APART,
        metadata={"doc": "The minimum isolation level for a run there; never below 2.", "least": 0, "most": 3},
    )
    ranked_min_isolation: int = field(
        default=2, metadata={"doc": "The minimum isolation level for a run from there to rank.", "least": 0, "most": 3}
    )
    poll_s: float = field(default=5.0, metadata={"doc": "How often open runs are checked.", "least": 0.05})
    pool: RayPoolSection | None = field(
        default=None,
        metadata={"doc": "The cluster that Ray's own launcher starts: see kbslurm ray pool.", "check": check_pool},
    )


@dataclass(frozen=True, kw_only=True)
class RayImageSetting:
    """The image of a GPU type, and its digest if one is pinned."""

    path: str
    digest: str


def image_of(told: RaySection, gpu: str) -> RayImageSetting | None:
    """The image that runs on this GPU type are in. None: they are in the harness's own cage."""
    asked = told.gpus[gpu]
    if told.runtime == "none" or not (asked.image or told.image):
        return None
    if asked.image:
        return RayImageSetting(path=asked.image, digest=asked.image_digest)
    return RayImageSetting(path=told.image, digest=asked.image_digest or told.image_digest)


def _ray_places(places: Mapping[str, RaySection]) -> Mapping[str, RaySection]:
    for name in places:
        if not _NAME.fullmatch(name):
            raise Invalid(
                f"{name!r} isn't a valid name of a place",
                hint="Use lower-case letters, digits and hyphens, at most 31.",
            )
    return dict(places)


RAY_PLACES = {"doc": "Ray clusters, by the name of the place.", "check": _ray_places}


def check_ray(places: Mapping[str, RaySection], public_url: str, file: toml_file.TomlFile) -> None:
    """A submission that isn't kept apart could start jobs of its own with the token in its worker's environment."""
    for name, told in places.items():
        if told.min_isolation < KEPT_APART:
            raise Misconfigured(
                f"below isolation level {KEPT_APART} a submission reaches Ray's ports and token, so nothing may run"
                " there",
                file=file.path,
                line=file.line(("ray", name, "min_isolation")),
                key=f"ray.{name}.min_isolation",
                fix=f"Leave it at {KEPT_APART}, for staff too; the nodes need user namespaces.",
            )
        if not told.url:
            raise Misconfigured(
                f"the Ray cluster {name} has no address",
                file=file.path,
                line=file.line(("ray", name, "url")),
                key=f"ray.{name}.url",
                fix='Write url = "http://HEAD:8265".',
            )
        _check_images(name, told, file)
        for gpu, asked in told.gpus.items():
            if told.ranked and asked.num_gpus % 1:
                raise Misconfigured(
                    f"{gpu} asks for {asked.num_gpus:g} GPUs, so runs would share one and their times wouldn't count",
                    file=file.path,
                    line=file.line(("ray", name, "gpus", gpu, "num_gpus")),
                    key=f"ray.{name}.gpus.{gpu}.num_gpus",
                    fix=f"Write a whole number, or ranked = false in [ray.{name}].",
                )
        if told.gpus and not (told.service_url or public_url):
            raise Misconfigured(
                f"the nodes of {name} have to call this service, and no address is set",
                file=file.path,
                line=file.line(("ray", name)),
                key=f"ray.{name}.service_url",
                fix='Set service_url = "https://…" there, or public_url under [server].',
            )


def _check_images(name: str, told: RaySection, file: toml_file.TomlFile) -> None:
    """A setting that would never have an effect is a mistake of somebody who believes that it has."""
    tables: list[tuple[tuple[str, ...], str, str, bool]] = [((), told.image, told.image_digest, bool(told.image))]
    for gpu, asked in told.gpus.items():
        tables.append((("gpus", gpu), asked.image, asked.image_digest, bool(asked.image or told.image)))
    for where, image, digest, has_image in tables:
        if image and told.runtime == "none":
            raise Misconfigured(
                f'runtime = "none" in [ray.{name}] means that no image is ever used',
                file=file.path,
                line=file.line(("ray", name, *where, "image")),
                key=".".join(("ray", name, *where, "image")),
                fix='Remove image, or write runtime = "apptainer".',
            )
        if digest and not has_image:
            raise Misconfigured(
                "there is no image whose digest it could be",
                file=file.path,
                line=file.line(("ray", name, *where, "image_digest")),
                key=".".join(("ray", name, *where, "image_digest")),
                fix='Add image = "/opt/kbslurm/cuda.sif", its path on the nodes.',
            )
