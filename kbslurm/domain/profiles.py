"""A verdict's profiles as they are shown: digests out of its stored detail. Pure.

Their sentences are the judge's, with names and numbers of the submission in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TOOLS = {"ncu": "Nsight Compute", "rocprof": "rocprofv3", "torch": "torch.profiler", "cprofile": "cProfile"}
KERNELS_SHOWN = 5
WITHOUT_IMAGE = ("unshare", "seccomp", "process", "none")  # means of isolation that are the harness's own


def digests(detail: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """What each profiler came to, by benchmark; verdicts of older versions have none."""
    means = _means(detail)
    return [{**row, "trouble": placed(row.get("trouble", ""), means)} for row in (detail or {}).get("digests") or ()]


def summary(detail: Mapping[str, Any] | None) -> str:
    """The whole text, which the submission's own process wrote in part."""
    return placed(str((detail or {}).get("profile", "")), _means(detail))


def placed(text: str, means: str) -> str:
    """Of a program that is missing the harness says "in this image"; where the run was in none, it is the machine."""
    return text.replace("isn't in this image", "isn't on this machine") if means in WITHOUT_IMAGE else text


def _means(detail: Mapping[str, Any] | None) -> str:
    isolation = (detail or {}).get("isolation")
    return str(isolation.get("means", "")) if isinstance(isolation, Mapping) else ""


def title(row: Mapping[str, Any]) -> str:
    """Which profile it is, in one line."""
    return f"benchmark-{row['benchmark']} ({row['spec']}), {TOOLS.get(row['tool'], row['tool'])}"


def sentences(row: Mapping[str, Any]) -> list[str]:
    """What limits it, by how much, and what to try; or why there is no profile."""
    return [f"no profile: {row['trouble']}"] if row["trouble"] else list(row["limits"])


def kernels(row: Mapping[str, Any], most: int = KERNELS_SHOWN) -> list[dict[str, Any]]:
    """The kernels that take most of the time, with what is known of each."""
    return [
        {
            "name": one["name"],
            "calls": one["calls"],
            "mean_s": one["total_ns"] / max(1, one["calls"]) / 1e9,
            "share": one["share"],
            "occupancy_pct": one["metrics"].get("occupancy_pct"),
        }
        for one in row["kernels"][:most]
    ]
