"""A runner's limits, as the kernel enforces them, and the devices that it may see."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Mapping

from kbslurm_eval.cage.kernel import PR_SET_THP_DISABLE, forbid_cores, prctl

GPU_DEVICES = ("nvidia", "kfd", "dri")
# Whom the kernel ends when memory is short: with this any of a submission's processes, however small, before any other.
# With half of it a baseline that is larger than half of the limit would go before them.
GOES_FIRST, SPARED = 1000, 0


# Where the kernel counts a user's tasks, those of a submission count for the baseline too: it has room for its own
# beside as many as a submission may have, and each finalist beside those of all others.
ROOM_BESIDE = 4


def set_limits(limits: Mapping[str, int], *, own_namespace: bool, gpu: bool, spared: bool = False) -> None:
    """Apply these to this process and everything it starts. `spared`: it is a baseline's."""

    def at_most(kind: int, value: int) -> None:
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))

    forbid_cores()
    # A page of two megabytes of which all but four kilobytes was given back stays whole, and is in nobody's count: one
    # runner can have every one that a node has, and whoever asks for memory then, a baseline for one, waits until the
    # kernel has taken some apart.
    with contextlib.suppress(OSError):  # gVisor has none
        prctl(PR_SET_THP_DISABLE, 1)
    # A judge that may have no more than 1,024 must be able to send some while a runner has all of its own on their way.
    is_roomy = resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 4096
    at_most(resource.RLIMIT_NOFILE, 1024 if is_roomy else 512)
    at_most(resource.RLIMIT_FSIZE, limits["file_bytes"])
    at_most(resource.RLIMIT_MEMLOCK, 64 << 20)
    with contextlib.suppress(ValueError, OSError):  # gVisor has none
        at_most(resource.RLIMIT_SIGPENDING, 1024)  # shared by all processes of one user
    # the kernel counts a user's tasks; in a user namespace of its own, only the runner's count
    others = 0 if own_namespace else _tasks_of(os.getuid())
    room = 1 if own_namespace else (ROOM_BESIDE if spared else 1) + limits.get("beside", 0)
    at_most(resource.RLIMIT_NPROC, room * limits["processes"] + others)
    if not gpu:  # a GPU driver reserves far more address space than memory
        at_most(resource.RLIMIT_DATA, limits["memory_bytes"] + (256 << 20))
        at_most(resource.RLIMIT_AS, 4 * limits["memory_bytes"] + (8 << 30))


def set_oom_score(score: int, pid: int | str = "self") -> None:
    """How early the kernel ends this process, and what it starts from here on, for want of memory. Anyone may raise
    that; what root writes can't be lowered again."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(score))


def oom_score() -> int:
    """What this process has."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/oom_score_adj", encoding="ascii") as file:
        return int(file.read())
    return SPARED


def _tasks_of(uid: int) -> int:
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == uid:
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count


def gpu_devices() -> list[str]:
    """The GPU device files on this machine."""
    with contextlib.suppress(OSError):
        return [f"/dev/{n}" for n in sorted(os.listdir("/dev")) if n.startswith(GPU_DEVICES[0]) or n in GPU_DEVICES[1:]]
    return []
