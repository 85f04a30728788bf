"""The machine's control groups, as far as a test cluster's Slurm uses them. Standard library only."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
NO_GROUPS = "The cluster can't have control groups"
CONTROLLERS = ("freezer", "memory", "devices", "cpuacct")


def lacking() -> str:
    """Why a cluster with --cgroups can't be had on this machine; empty if it can."""
    if (CGROUPS / "cgroup.controllers").exists():
        return "this machine has version 2 only, of which Slurm wants systemd or a tree delegated to each slurmd"
    missing = [name for name in CONTROLLERS if not (CGROUPS / name / "cgroup.procs").exists()]
    if missing:
        return f"{CGROUPS} has no {', '.join(missing)}"
    probe = CGROUPS / "freezer" / f"kbslurm-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as trouble:
        return f"no group can be made in {probe.parent}: {trouble.strerror}"
    used = [group for group in CGROUPS.glob("*/slurm_*/**/cgroup.procs") if group.read_text().strip()]
    return f"another cluster has its jobs in {used[0].parent}" if used else ""


def remove() -> None:
    """The groups of a cluster that has ended; the kernel keeps those in which something still runs."""
    for top in CGROUPS.glob("*/slurm_*"):
        for group in sorted((one for one in (top, *top.rglob("*")) if one.is_dir()), reverse=True):
            with suppress(OSError):
                group.rmdir()
