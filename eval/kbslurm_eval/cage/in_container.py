"""What a runner in a container puts on itself; the rest of its cage is the container's."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from kbslurm_eval.cage import seen_inside
from kbslurm_eval.cage.kernel import NEW_NS, NEW_USER, libc_call
from kbslurm_eval.cage.limits import GOES_FIRST, SPARED, gpu_devices, set_limits, set_oom_score
from kbslurm_eval.cage.mounts import fix_devices, fix_link, fix_proc, fix_sys
from kbslurm_eval.cage.syscall_filter import put_on_seccomp, seccomp_filter
from kbslurm_eval.cage.users import drop_capabilities, map_ids


def put_on_inner_cage(told: Mapping[str, Any], folder: str) -> None:
    """What a runner in a container puts on itself: its log, limits and the filter. The rest is the container's."""
    log = f"{folder}/log"
    if os.path.exists(log):
        fd = os.open(log, os.O_WRONLY)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        os.close(fd)
    with contextlib.suppress(OSError):
        os.setsid()
    os.environ["HOME"] = os.environ.get("TMPDIR") or "/tmp"  # the account's own isn't in an image
    score = int(told.get("oom_score", GOES_FIRST))
    set_limits(told["limits"], own_namespace=False, gpu=bool(gpu_devices()), spared=score == SPARED)
    set_oom_score(score)
    _leave_the_first_process(folder)
    try:
        gpu, inet = bool(gpu_devices()), bool(told.get("inet"))
        put_on_seccomp(seccomp_filter(bare=False, own_pid=os.getpid(), inet=inet, memfd=gpu))
    except (OSError, KeyError) as error:
        print(f"no system call filter: {error}", file=sys.stderr)


def _leave_the_first_process(folder: str) -> None:
    """A user namespace below the container's: the memory of its first process, which has no filter, is out of reach.

    It belongs to the same user, so that a submission could otherwise write code of its own into it, to be run without
    the filter. Whether that is shut off now, by this or by the machine's own ways, is looked at: see `level_of`.
    """
    uid, gid = os.getuid(), os.getgid()
    with contextlib.suppress(OSError):
        libc_call("unshare", NEW_USER)
        map_ids(os.getpid(), f"{uid} {uid} 1\n", f"{gid} {gid} 1\n")
        _fix_mounts(folder)
        drop_capabilities()


def _fix_mounts(folder: str) -> None:
    """The container's devices and /sys are the node's own: what can be set there would outlive the run, and the link's
    folder is in the node's shared memory. Whether they are closed is looked at as well. And /proc is where a process
    could say that the kernel should end others first."""
    with contextlib.suppress(OSError):
        given = os.stat("/proc/self/ns/mnt").st_ino
        libc_call("unshare", NEW_NS)
        seen_inside.containers_own["mnt"] = given  # one's own mounts confine nothing
        fix_devices()
        fix_sys()
        fix_link(folder)
        if not gpu_devices():
            fix_proc()
