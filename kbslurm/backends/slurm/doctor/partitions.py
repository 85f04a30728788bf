"""A cluster's partitions and their GPUs, as sinfo and scontrol show them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

GRES_FORMAT = "%P|%G|%c|%D|%t"
UNTYPED = "gpu"
_GPU = re.compile(r"\bgpu(?::(?P<type>[A-Za-z][^:,()\s]*|\d[^:,()\s]*[A-Za-z][^:,()\s]*))?:(?P<count>\d+)")
_SLICE = re.compile(r"(?:^|[_.-])\d+g\.\d+gb", re.IGNORECASE)
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


def node_sets(scontrol: str) -> dict[str, str]:
    """By partition, the node sets whose nodes it takes in, `ALL` among them; empty if it names each of its nodes."""
    told = [words for words in map(_words, scontrol.splitlines()) if "PartitionName" in words]
    return {words["PartitionName"]: words.get("NodeSets", "") for words in told}


def read_span(text: str) -> float | None:
    """Slurm's `[D-]H:M:S`, `M:S` or `M`; None if there is no limit."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if not found:
        return None
    days, first, second, third = found.groups()
    if days is not None or third is not None:
        return int(days or 0) * 86_400.0 + int(first) * 3600 + int(second or 0) * 60 + int(third or 0)
    return int(first) * 60.0 + int(second or 0)


def _words(line: str) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in line.split() if "=" in word)


def _number(text: str) -> int:
    digits = re.match(r"\d+", text)
    return int(digits[0]) if digits else 0


def is_slice(slurm_type: str) -> bool:
    """Whether a type's name says that it is a part of a device (MIG), like 1g.10gb."""
    return bool(_SLICE.search(slurm_type))
