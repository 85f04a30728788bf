"""Facts about the machine that a report comes from."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

CGROUP = Path("/sys/fs/cgroup")


def facts() -> dict[str, Any]:
    """CPU, kernel, Python, libraries in use, and the GPU if there is one."""
    found: dict[str, Any] = {
        "node": platform.node(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "load": [round(x, 2) for x in os.getloadavg()],
        "python": platform.python_version(),
        "libraries": {
            n: str(getattr(sys.modules[n], "__version__", "")) for n in ("numpy", "torch") if n in sys.modules
        },
    }
    if gpus := _gpus():
        found["gpus"] = gpus
    return found


def cores() -> int:
    """How many cores this job may use at the same time."""
    return max(1, math.floor(min(len(os.sched_getaffinity(0)), _share())))


def _share() -> float:
    """How many cores' time the control group allows; infinity where it doesn't say."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with contextlib.suppress(OSError, ValueError):
            text = " ".join((CGROUP / name).read_text(encoding="ascii") for name in names)
            quota, period = map(int, text.split())
            return quota / period if quota > 0 else math.inf
    return math.inf


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model", "cpu model"):
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


_ASKED = (
    "name",
    "uuid",
    "driver_version",
    "vbios_version",
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "temperature.gpu",
    "power.draw",
)


def _gpus() -> list[dict[str, str]]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        argv = [tool, f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader"]
        done = subprocess.run(argv, capture_output=True, timeout=20, check=True, text=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [
        dict(zip(_ASKED, (v.strip() for v in line.split(",")), strict=False)) for line in done.stdout.splitlines()[:16]
    ]
