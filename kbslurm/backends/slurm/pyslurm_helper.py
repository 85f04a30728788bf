"""One question on standard input, one answer on standard output, both a line of JSON. Standalone: standard library and
pyslurm only, run by an interpreter whose pyslurm matches the site's Slurm.

{"ask": "version"} → {"pyslurm": "24.11.0", "slurm": "24.11.5"}
{"ask": "fleet"}   → {"slurm": …, "nodes": [{name, partitions, state, gpus, gpus_used, reason}], "reservations":
                      [{name, state, nodes, starts_at_s, ends_at_s, flags}]}
anything else      → {"error": "…"}
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> int:
    # This folder isn't a place to import from; an interpreter that knows -P or -I hasn't put it there.
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    try:
        question = json.loads(sys.stdin.readline())
        print(json.dumps(answer(question)), flush=True)
    except Exception as error:  # noqa: BLE001 - whatever it is, the one who asked is told in one line
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        return 1
    return 0


def answer(question: dict[str, Any]) -> dict[str, Any]:
    import pyslurm

    if hasattr(pyslurm, "slurm_init"):
        pyslurm.slurm_init(question.get("conf") or None)
    if question.get("ask") == "version":
        return {"pyslurm": pyslurm.__version__, "slurm": slurm_version(pyslurm)}
    if question.get("ask") == "fleet":
        return {"slurm": slurm_version(pyslurm), "nodes": nodes(pyslurm), "reservations": reservations(pyslurm)}
    raise ValueError(f"there is no question {question.get('ask')!r}")


def slurm_version(pyslurm: Any) -> str:
    """The Slurm whose library is loaded, which is the site's."""
    asked = getattr(pyslurm, "slurm_api_version", None)
    if asked is not None:
        return ".".join(map(str, asked()))
    return str(pyslurm.slurmctld.Config.load().version)


def nodes(pyslurm: Any) -> list[dict[str, Any]]:
    found = pyslurm.Nodes.load()
    partitions = pyslurm.Partitions.load()
    where: dict[str, set[str]] = {name: set() for name in found}
    for name, partition in partitions.items():
        for node in expanded(pyslurm, partition.nodes):
            where.setdefault(node, set()).add(str(name))
    return [
        {
            "name": str(name),
            "partitions": sorted(where.get(str(name), ())),
            "state": str(node.state),
            "gpus": gpus(node.configured_gres),
            "gpus_used": typed(gpus(node.allocated_gres), gpus(node.configured_gres)),
            "reason": str(node.reason or ""),
        }
        for name, node in found.items()
    ]


def expanded(pyslurm: Any, names: str | None) -> list[str]:
    """`h[1-2],a1` as its names."""
    if not names:
        return []
    lister = pyslurm.hostlist()
    lister.create(names)
    return [one.decode() if isinstance(one, bytes) else str(one) for one in lister.get_list()]


def gpus(gres: dict[str, Any] | None) -> dict[str, int]:
    """pyslurm's `{"gpu:h100": 4}`, `{"gpu": 2}` by type."""
    found: dict[str, int] = {}
    for name, count in (gres or {}).items():
        first, _, kind = str(name).partition(":")
        if first == "gpu":
            found[kind or "gpu"] = found.get(kind or "gpu", 0) + int(count)
    return found


def typed(used: dict[str, int], there: dict[str, int]) -> dict[str, int]:
    """A job that named no type is counted without one; on a node with a single type it counts as that."""
    if "gpu" in used and "gpu" not in there and len(there) == 1:
        (kind,) = there
        return {kind: sum(used.values())}
    return used


def reservations(pyslurm: Any) -> list[dict[str, Any]]:
    """Releases before 25.5 give dictionaries, later ones objects."""
    if hasattr(pyslurm, "Reservations"):
        told = {
            name: {"start": one.start_time, "end": one.end_time, "nodes": one.nodes, "flags": flags_of(one.flags)}
            for name, one in pyslurm.Reservations.load().items()
        }
    else:
        told = {
            name: {
                "start": one["start_time"],
                "end": one["end_time"],
                "nodes": one["node_list"],
                "flags": sorted(flag for flag in str(one["flags"] or "").split(",") if flag),
            }
            for name, one in pyslurm.reservation().get().items()
        }
    now = time.time()
    return [
        {
            "name": str(name),
            "state": "ACTIVE" if one["start"] <= now < one["end"] else "INACTIVE",
            "nodes": str(one["nodes"] or ""),
            "starts_at_s": int(one["start"]),
            "ends_at_s": int(one["end"]),
            "flags": one["flags"],
        }
        for name, one in told.items()
    ]


def flags_of(flags: Any) -> list[str]:
    try:
        return sorted(str(getattr(flag, "name", flag)).upper() for flag in flags)
    except TypeError:
        return sorted(part for part in str(flags).split("|") if part)


if __name__ == "__main__":
    raise SystemExit(main())
