"""What is known of the machine and the program that a report comes from."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any


def harness_digest() -> str:
    """sha256 over the sorted sources of this program: the folder's `__main__.py`, this package, a job's supervisor."""
    package = Path(__file__).resolve().parent
    told = hashlib.sha256()
    sources = sorted(package.rglob("*.py"), key=lambda p: p.relative_to(package).as_posix())
    main = package.parent / "__main__.py"
    for name, path in [
        ("__main__.py", main),
        *((f"kbslurm_eval/{p.relative_to(package).as_posix()}", p) for p in sources),
        ("supervise.sh", main.with_name("supervise.sh")),
    ]:
        if path.is_file():
            body = path.read_bytes()
            told.update(f"{name}\0{len(body)}\0".encode() + body)
    return told.hexdigest()


def facts() -> dict[str, Any]:
    """CPU, kernel, Python, libraries that are in use, and the GPU when there is one."""
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
