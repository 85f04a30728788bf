"""What a cluster says of itself, read once: partitions, GPUs, accounts, settings. And a first site file made of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from kbslurm.backends.slurm.commands import Commands
from kbslurm.domain.site import Paths, Scheduler, Site, Vendor
from kbslurm.errors import BackendTrouble, Misconfigured

GRES_FORMAT = "%P|%G|%c|%D|%t"
ACCOUNT_FIELDS = "Account,Partition,QOS"
UNTYPED = "gpu"
_GPU = re.compile(r"\bgpu(?::(?P<type>[A-Za-z][^:,()\s]*|\d[^:,()\s]*[A-Za-z][^:,()\s]*))?:(?P<count>\d+)")
_SLICE = re.compile(r"(?:^|[_.-])\d+g\.\d+gb", re.IGNORECASE)
_AMD = re.compile(r"(?:^|[^a-z])(?:mi\d{2,3}|gfx\d|instinct|radeon)", re.IGNORECASE)
_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")
_USABLE = ("idle", "mix", "alloc", "comp", "plnd", "resv")


@dataclass(frozen=True, kw_only=True)
class Partition:
    """One partition, as it concerns us. `gpus`: how many of each Slurm type its nodes have."""

    name: str
    gpus: Mapping[str, int]
    up: bool = True
    default: bool = False
    preemptible: bool = False
    max_time_s: float | None = None
    least_cpus: int = 0


@dataclass(frozen=True, kw_only=True)
class Survey:
    """All that was found. `cannot`: what was asked and not answered, in words."""

    cluster: str
    version: str
    settings: Mapping[str, str]
    partitions: tuple[Partition, ...]
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    runtime: str = ""
    program: str = ""
    cannot: tuple[str, ...] = ()

    @property
    def accounting(self) -> bool:
        """Whether sacct can know anything."""
        return has_accounting(self.settings)


# ------------------------------------------------------------------------------------------------------------- reading


def read_settings(text: str) -> dict[str, str]:
    """`scontrol show config` as a mapping; `(null)` is an empty text. The cgroup settings below are in it, too.

    `answered at` is the controller's own clock, in seconds since the epoch, where its Slurm can say that.
    """
    found: dict[str, str] = {}
    if answered := re.match(r"Configuration data as of (\d+)$", text, re.MULTILINE):
        found["answered at"] = answered[1]
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and re.fullmatch(r"[A-Za-z0-9_/ ]+", key.strip()):
            told = value.strip()
            found.setdefault(key.strip(), "" if told == "(null)" else told)
    return found


def has_accounting(settings: Mapping[str, str]) -> bool:
    """Whether Slurm keeps the history that sacct shows."""
    return settings.get("AccountingStorageType", "").endswith("slurmdbd")


def read_version(text: str) -> str:
    """`slurm-wlm 24.11.5` or `slurm 24.05.3` → the number."""
    found = re.search(r"\d+\.\d+(?:\.\d+)?\S*", text)
    return found[0] if found else ""


def gpus_of(gres: str) -> dict[str, int]:
    """`gpu:h100:4(S:0-1),gpu:a100:2` → {"h100": 4, "a100": 2}. A type that Slurm doesn't name is UNTYPED."""
    found: dict[str, int] = {}
    for one in _GPU.finditer(gres):
        kind = one["type"] or UNTYPED
        found[kind] = found.get(kind, 0) + int(one["count"])
    return found


def read_partitions(sinfo: str, scontrol: str) -> tuple[Partition, ...]:
    """From `sinfo -h -a -o GRES_FORMAT` and `scontrol -o show partition`."""
    gpus: dict[str, dict[str, int]] = {}
    cpus: dict[str, list[int]] = {}
    for line in sinfo.splitlines():
        fields = line.split("|")
        if len(fields) != GRES_FORMAT.count("|") + 1:
            continue
        name, gres, per_node, nodes, state = (text.strip() for text in fields)
        name = name.rstrip("*")
        held = gpus.setdefault(name, {})
        cpus.setdefault(name, []).append(_number(per_node))
        if not state.rstrip("*+~#$@^!%-").lower().startswith(_USABLE):
            continue
        for kind, count in gpus_of(gres).items():
            held[kind] = held.get(kind, 0) + count * _number(nodes)
    told = {words["PartitionName"]: words for words in map(_words, scontrol.splitlines()) if "PartitionName" in words}
    return tuple(
        Partition(
            name=name,
            gpus=held,
            up=told.get(name, {}).get("State", "UP") == "UP",
            default=told.get(name, {}).get("Default") == "YES",
            preemptible=told.get(name, {}).get("PreemptMode", "OFF") not in ("OFF", "N/A", ""),
            max_time_s=read_span(told.get(name, {}).get("MaxTime", "")),
            least_cpus=min(cpus[name], default=0),
        )
        for name, held in gpus.items()
    )


def read_span(text: str) -> float | None:
    """Slurm's `[D-]H:M:S`, `M:S` or `M`; None where there is no limit."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if not found:
        return None
    days, first, second, third = found.groups()
    if days is not None or third is not None:
        return int(days or 0) * 86_400.0 + int(first) * 3600 + int(second or 0) * 60 + int(third or 0)
    return int(first) * 60.0 + int(second or 0)


def read_accounts(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`sacctmgr -n -P show assoc … format=ACCOUNT_FIELDS` → the accounts, and every QOS that they give."""
    accounts: dict[str, None] = {}
    qos: dict[str, None] = {}
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) == ACCOUNT_FIELDS.count(",") + 1 and fields[0]:
            accounts[fields[0]] = None
            qos |= dict.fromkeys(name for name in fields[2].split(",") if name)
    return tuple(accounts), tuple(qos)


def _words(line: str) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in line.split() if "=" in word)


def _number(text: str) -> int:
    digits = re.match(r"\d+", text)
    return int(digits[0]) if digits else 0


# -------------------------------------------------------------------------------------------------------------- asking


def asker(*, bin_dir: str = "", environ: Mapping[str, str] | None = None) -> Commands:
    """Slurm's commands before there is a site."""
    nowhere = Site(name="here", paths=Paths(shared_root=PurePosixPath("/")), slurm=Scheduler(bin_dir=bin_dir), gpus={})
    return Commands(nowhere, environ=environ)


def survey(commands: Commands, *, user: str, program: str = "") -> Survey:
    """Ask the cluster. BackendTrouble when there is no Slurm here; what else isn't answered is noted, not fatal."""
    version = read_version(commands.run("sinfo", ["-V"]).out)
    cannot: list[str] = []

    def asked(tool: str, *arguments: str) -> str:
        try:
            answer = commands.run(tool, arguments)
        except BackendTrouble as error:
            cannot.append(error.message)
            return ""
        if answer.status:
            cannot.append(f"{tool}: {answer.complaint}")
        return answer.out

    settings = read_settings(asked("scontrol", "show", "config"))
    partitions = read_partitions(
        asked("sinfo", "-h", "-a", "-o", GRES_FORMAT), asked("scontrol", "-o", "show", "partition")
    )
    accounts, qos = (), ()  # type: tuple[str, ...], tuple[str, ...]
    if has_accounting(settings):
        words = ("-n", "-P", "show", "assoc", f"user={user}", f"format={ACCOUNT_FIELDS}")
        accounts, qos = read_accounts(asked("sacctmgr", *words))
    return Survey(
        cluster=settings.get("ClusterName", ""),
        version=version,
        settings=settings,
        partitions=partitions,
        accounts=accounts,
        qos=qos,
        runtime="singularity" if program.endswith("singularity") else "apptainer" if program else "",
        program=program,
        cannot=tuple(cannot),
    )


# ------------------------------------------------------------------------------------------------------- the first file


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
    def whole(self) -> bool:
        return not is_slice(self.slurm_type)


def is_slice(slurm_type: str) -> bool:
    """Whether a type's name says that it is a part of a device (MIG), like 1g.10gb."""
    return bool(_SLICE.search(slurm_type))


def kinds(partitions: Sequence[Partition]) -> list[Kind]:
    """Each GPU type with the partition that suits it best: open, not preempted, with nothing else in it."""
    found = []
    for kind in sorted({kind for partition in partitions for kind in partition.gpus}):
        fitting = sorted((one for one in partitions if one.gpus.get(kind) and one.up), key=_preference)
        if fitting:
            name = _PLAIN.sub("-", kind if is_slice(kind) else kind.upper()).lstrip("_.-")
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
    """What no cluster can say. Empty: a guess, with a comment that says so."""

    name: str = ""
    shared_root: str
    image_dir: str = ""
    image: str = ""
    checked_on: str = ""
    bin_dir: str = ""
    gpus: tuple[str, ...] = field(default=())


def toml_of(found: Survey, wishes: Wishes) -> str:
    """A site file of what was found, with a comment at whatever a person should look at. Misconfigured without GPUs."""
    chosen = [kind for kind in kinds(found.partitions) if not wishes.gpus or kind.name in wishes.gpus]
    if not chosen:
        raise Misconfigured(
            f"Slurm on {found.cluster or 'this cluster'} shows no GPU that could be used",
            fix="Look at sinfo -o '%P %G %t'; where GPUs are features, write the file by hand (docs/site-admin.md).",
        )
    return "\n".join([*_head(found, wishes), *(line for kind in chosen for line in _gpu(kind, found, wishes))]) + "\n"


def _head(found: Survey, wishes: Wishes) -> Iterator[str]:
    name = _PLAIN.sub("-", wishes.name or found.cluster or "site").strip("-") or "site"
    yield f"# Written by kbslurm site init for Slurm {found.version}. Lines with a ? are guesses: look at them."
    yield f"# Then: kbslurm site check {name}.toml, kbslurm doctor --site {name}.toml --live"
    for told in found.cannot:
        yield f"# ? not answered: {told}"
    yield f"name = {_quoted(name)}"
    yield '# ? say "live" once kbslurm doctor --live passes'
    yield 'verified = "community"'
    if wishes.checked_on:
        yield f"checked_on = {_quoted(wishes.checked_on)}"
    if not found.program:
        yield "# ? there is no apptainer or singularity on this machine: name the module that brings it"
        yield '# modules = ["apptainer"]'
    yield from (
        "",
        "[paths]",
        "# ? a folder that this machine and every compute node see, and that only the service's own account can enter",
        f"shared_root = {_quoted(wishes.shared_root)}",
    )
    if wishes.image_dir:
        yield f"image_dir = {_quoted(wishes.image_dir)}"
    yield "# ? a disk of the node's own for temporary files, when there is one: $TMPDIR, /localscratch/$SLURM_JOB_ID"
    yield '# node_scratch = "$TMPDIR"'
    yield from ("", "[container]", f"runtime = {_quoted(found.runtime or 'apptainer')}")
    if found.program and not found.program.startswith(("/usr/bin/", "/bin/", "/usr/local/bin/")):
        yield f"program = {_quoted(found.program)}"
    yield from ("", "[slurm]", f"accounting = {str(found.accounting).lower()}")
    if wishes.bin_dir:
        yield f"bin_dir = {_quoted(wishes.bin_dir)}"
    yield from (
        "",
        "[poll]",
        "# ? how often the controller may be asked; some sites have rules about that",
        'min_interval = "15s"',
    )


def _gpu(kind: Kind, found: Survey, wishes: Wishes) -> Iterator[str]:
    partition = kind.partition
    yield from ("", f"[gpus.{_key(kind.name)}]")
    if kind.others:
        yield f"# the type is in these partitions, too: {', '.join(kind.others)}"
    yield f"request = {_quoted(kind.request)}"
    yield f"partition = {_quoted(partition.name)}"
    if partition.preemptible:
        yield "# ? its jobs can be preempted: a run then starts again, three times at most"
    if len(found.accounts) == 1:
        yield f"account = {_quoted(found.accounts[0])}"
    elif found.accounts:
        yield f"# ? one of these pays: {', '.join(found.accounts)}"
        yield f"account = {_quoted(found.accounts[0])}"
    if len(found.qos) > 1:
        yield f"# ? QOS that this account may use: {', '.join(found.qos)}"
        yield f"# qos = {_quoted(found.qos[0])}"
    yield f"vendor = {_quoted(kind.vendor)}"
    if not kind.whole:
        yield "# a part of a device: others disturb its timings"
        yield "whole = false"
    yield f"count = {partition.gpus[kind.slurm_type]}"
    if partition.max_time_s is not None:
        yield f"max_time = {_quoted(f'{max(60, int(partition.max_time_s))}s')}"
    yield "# ? made by kbslurm image build; pin it by image_digest"
    yield f"image = {_quoted(wishes.image or ('rocm.sif' if kind.vendor == 'amd' else 'cuda.sif'))}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)
