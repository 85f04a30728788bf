"""An attempt in a container on a Ray node: what the supervisor of a site's jobs is told there.

It runs below the supervisor of local attempts, which holds the time, ends whatever is left, and removes what lies in
memory, however the container ends. Part of what the service sends to a node, like node_program.py.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbslurm.backends import supervisor_call

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
HANDED_ON = (
    *("LANG", "TZ", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
    "ZE_AFFINITY_MASK",
)
OF_ITS_PYTHON = ("LD_LIBRARY_PATH", "CUDA_HOME")  # the container program takes the system's libraries
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the folder in it is this account's own
SCRATCH_MB = 1024  # all that one runner may write, as at a site that says nothing of it
START_S = 60.0  # what containers may take to start, beyond the run's own limit
FIRST_S = 600.0  # what the first look at an image on a node may take: all of it is read
JUDGE_BYTES = 4 << 30  # of the judge and of the container's own programs, which are counted with the submission here
_EXEC = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"
_UNSAFE = ":,\\\n"  # in --bind


class NoContainer(RuntimeError):
    """No container can be started on this node; the message says why, and what to do."""


def program_for(order: Mapping[str, Any], env: Mapping[str, str], node: str, place: str) -> str | None:
    """The container program of this node. None if the harness's own cage is to hold the run: there is no image, or no
    program, which is then allowed. NoContainer if program or image are missing and it isn't."""
    told = order["container"]
    if told is None:
        return None
    path = path_of(env)
    found: str | None = next((name for name in told["commands"] if shutil.which(name, path=path)), None)
    if found is None and told["or_own_cage"]:
        return None
    if found is None:
        raise NoContainer(
            f'there is no {" or ".join(told["commands"])} on {node}: install it there, or set runtime = "auto" in'
            f" [ray.{place}] to let such nodes use the harness's own cage"
        )
    if not os.access(told["image"], os.F_OK):
        raise NoContainer(
            f"there is no image {told['image']} on {node}: put it there, or correct image in [ray.{place}]"
        )
    return found


def path_of(env: Mapping[str, str]) -> str:
    """Where programs are looked for: the system's before whatever environment Ray itself runs in."""
    return f"{SYSTEM_PATH}:{env['PATH']}" if env.get("PATH") else SYSTEM_PATH


def order_in_container(
    usual: Mapping[str, Any],
    told: Mapping[str, Any],
    program: str,
    *,
    env: Mapping[str, str],
    folder: Path,
    harness: Path,
    node: str,
) -> dict[str, Any]:
    """The supervisor's order for the same attempt in a container. `usual`: its order without one."""
    for path in (folder, harness):
        if any(letter in str(path) for letter in _UNSAFE):
            raise NoContainer(f"{path} on {node} can't be bound into a container: give Ray a TMPDIR without , and :")
    container = told["container"]
    limit_s = math.ceil(told["time_limit_s"] + START_S)
    shared = os.access(SHARED_MEMORY, os.W_OK)
    variables = {
        "JOB": told["name"],
        "NODE": node,
        "LIMIT_S": str(limit_s),
        "SHM_ROOT": usual["work"],
        "KNOWN_ROOT": SHARED_MEMORY if shared else tempfile.gettempdir(),
        "SCRATCH_ROOT": str(folder / "scratch"),
        "SCRATCH_MB": str(SCRATCH_MB),
        "RUNTIME": program,
        "CONTAINER": container["commands"][program],
        "IMAGE": container["image"],
        "PINNED": container["pinned"],
        "VENDOR": container["vendor"],
        "GPU_OPTION": container["gpu_option"],
        "MIN_ISOLATION": str(told["min_isolation"] or ""),
    }
    own = {name: value for name, value in usual["environment"].items() if name not in OF_ITS_PYTHON}
    given = {name: env[name] for name in HANDED_ON if name in env}
    return {
        **usual,
        "argv": ["-I", "-S", "-c", _EXEC, *supervisor_call.command(folder, harness, variables)],
        "environment": {**own, **given, "PATH": path_of(env)},
        # Both are last resorts: the supervisor in the job has its own watchdog, and the judge counts a runner's memory.
        "time_limit_s": limit_s + FIRST_S,
        "memory_bytes": 2 * told["memory_bytes"] + JUDGE_BYTES,
        "exit": str(folder / "ended.json"),
    }
