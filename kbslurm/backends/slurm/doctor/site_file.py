"""A first site file, made from a cluster's own settings, with a comment at every guess."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kbslurm.backends.slurm.doctor.partitions import UNTYPED, Partition, is_slice
from kbslurm.backends.slurm.doctor.survey import Survey
from kbslurm.domain.site import Vendor
from kbslurm.errors import Misconfigured

FEW = 4
_AMD = re.compile(r"(?:^|[^a-z])(?:mi\d{2,3}|gfx\d|instinct|radeon)", re.IGNORECASE)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One GPU type as it goes into the file."""

    name: str
    slurm_type: str
    partition: Partition
    others: tuple[str, ...] = ()

    @property
    def request(self) -> str:
        return "--gres=gpu:1" if self.slurm_type == UNTYPED else f"--gres=gpu:{self.slurm_type}:1"

    @property
    def vendor(self) -> Vendor:
        return "amd" if _AMD.search(self.slurm_type) else "nvidia"

    @property
    def there(self) -> int:
        """How many GPUs of this type its partition has."""
        return self.partition.gpus[self.slurm_type]

    @property
    def proposed(self) -> int:
        """How many of them we may use if nobody says: few, since the others on the cluster need them, too."""
        return min(self.there, FEW)

    @property
    def is_whole(self) -> bool:
        return not is_slice(self.slurm_type)


def kinds(partitions: Sequence[Partition]) -> list[Kind]:
    """Each GPU type with its best partition: open, not preempted, with nothing else in it."""
    found = []
    for kind in sorted({kind for partition in partitions for kind in partition.gpus}):
        fitting = sorted((one for one in partitions if one.gpus.get(kind) and one.up), key=_preference)
        if fitting:
            name = _NOT_IN_NAMES.sub("-", kind if is_slice(kind) else kind.upper()).lstrip("_.-")
            found.append(
                Kind(
                    name=name,
                    slurm_type=kind,
                    partition=fitting[0],
                    others=tuple(one.name for one in fitting[1:]),
                )
            )
    return found


def _preference(partition: Partition) -> tuple[bool, int, bool, str]:
    return partition.preemptible, len(partition.gpus), not partition.default, partition.name


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What a cluster can't tell. Empty: a guess, marked by a comment. `counts`: how many GPUs of a type we may use."""

    name: str = ""
    shared_root: str
    image_dir: str = ""
    image: str = ""
    checked_on: str = ""
    bin_dir: str = ""
    rest: str = ""
    token_command: str = ""
    gpus: tuple[str, ...] = field(default=())
    counts: Mapping[str, int] = field(default_factory=dict)


def chosen_kinds(found: Survey, names: Sequence[str]) -> list[Kind]:
    """The GPU types that go into the file: those named, or all."""
    return [kind for kind in kinds(found.partitions) if not names or kind.name in names]


def toml_of(found: Survey, wishes: Wishes) -> str:
    """A site file from the survey, with comments where a person should review it. Misconfigured without GPUs."""
    chosen = chosen_kinds(found, wishes.gpus)
    if not chosen:
        raise Misconfigured(
            f"Slurm on {found.cluster or 'this cluster'} shows no usable GPUs",
            fix="Check sinfo -o '%P %G %t'; if GPUs are features, write the file by hand (docs/site-admin.md).",
        )
    return "\n".join([*_head(found, wishes), *(line for kind in chosen for line in _gpu(kind, found, wishes))]) + "\n"


def _head(found: Survey, wishes: Wishes) -> Iterator[str]:
    name = _NOT_IN_NAMES.sub("-", wishes.name or found.cluster or "site").strip("-") or "site"
    yield f"# Written by kbslurm site init for Slurm {found.version}. Lines with a ? are guesses: review them."
    yield f"# Then: kbslurm site check {name}.toml, kbslurm doctor --site {name}.toml --live"
    for told in found.cannot:
        yield f"# ? not answered: {told}"
    yield f"name = {_quoted(name)}"
    yield '# ? set to "live" once kbslurm doctor --live passes'
    yield 'verified = "community"'
    if wishes.checked_on:
        yield f"checked_on = {_quoted(wishes.checked_on)}"
    if not found.program:
        yield "# ? neither apptainer nor singularity is on this machine: add the module that provides it"
        yield '# modules = ["apptainer"]'
    yield from (
        "",
        "[paths]",
        "# ? a folder shared by this machine and every compute node, accessible only to the service's account",
        f"shared_root = {_quoted(wishes.shared_root)}",
    )
    if wishes.image_dir:
        yield f"image_dir = {_quoted(wishes.image_dir)}"
    yield "# ? the node's local disk for temporary files, if there is one: $TMPDIR, /localscratch/$SLURM_JOB_ID"
    yield '# node_scratch = "$TMPDIR"'
    yield from ("", "[container]", f"runtime = {_quoted(found.runtime or 'apptainer')}")
    if found.program and not found.program.startswith(("/usr/bin/", "/bin/", "/usr/local/bin/")):
        yield f"program = {_quoted(found.program)}"
    if wishes.rest:
        yield from ("", "[submit]", 'via = "rest"', f"url = {_quoted(wishes.rest)}")
        if wishes.token_command:
            yield f"token_command = {_quoted(wishes.token_command)}"
        else:
            yield "# ? token_command or token_file; without either the token is in SLURM_JWT"
    yield from ("", "[slurm]", f"accounting = {str(found.accounting).lower()}")
    if wishes.bin_dir:
        yield f"bin_dir = {_quoted(wishes.bin_dir)}"
    yield from (
        "",
        "[poll]",
        "# ? how often the controller may be polled; some sites have rules about that",
        'min_interval = "15s"',
    )


def _gpu(kind: Kind, found: Survey, wishes: Wishes) -> Iterator[str]:
    partition = kind.partition
    yield from ("", f"[gpus.{_key(kind.name)}]")
    if kind.others:
        yield f"# the type is also in these partitions: {', '.join(kind.others)}"
    yield f"request = {_quoted(kind.request)}"
    yield f"partition = {_quoted(partition.name)}"
    if partition.preemptible:
        yield "# ? its jobs can be preempted: a run is then restarted, at most three times"
    if len(found.accounts) == 1:
        yield f"account = {_quoted(found.accounts[0])}"
    elif found.accounts:
        yield f"# ? one of these pays: {', '.join(found.accounts)}"
        yield f"account = {_quoted(found.accounts[0])}"
    if len(found.qos) > 1:
        yield f"# ? QOS that this account may use: {', '.join(found.qos)}"
        yield f"# qos = {_quoted(found.qos[0])}"
    yield f"vendor = {_quoted(kind.vendor)}"
    if not kind.is_whole:
        yield "# a part of a device: others disturb its timings"
        yield "whole = false"
    count = min(wishes.counts.get(kind.name, kind.proposed), kind.there)
    if kind.name not in wishes.counts and count < kind.there:
        yield f"# ? of the {kind.there} in {partition.name}: how many may be ours at once"
    yield f"count = {count}"
    if partition.max_time_s is not None:
        yield f"max_time = {_quoted(f'{max(60, int(partition.max_time_s))}s')}"
    yield "# ? made by kbslurm image build; pin it with image_digest"
    yield f"image = {_quoted(wishes.image or ('rocm.sif' if kind.vendor == 'amd' else 'cuda.sif'))}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)
