"""What a process sees of its own cage, and the resulting isolation level."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Iterable, Mapping
from typing import Any

from kbslurm_eval.cage import kernel, landlock
from kbslurm_eval.cage.kernel import PR_GET_NO_NEW_PRIVS, PR_GET_SECCOMP, PR_SET_DUMPABLE, libc, prctl
from kbslurm_eval.cage.mounts import writable_below
from kbslurm_eval.cage.places import DEVICES

GVISOR = (
    "this kernel is gVisor: pinning to cores and scheduling classes have no effect, so times may scatter more, and the "
    "numbers of processes and of queued signals aren't limited"
)
containers_own: dict[str, int] = {}  # a namespace that a container gave, where the runner is in one below it
NOBODY = 0x7FFF_FFF0  # no process has this pid: Linux goes up to 2**22


def seen_from_inside() -> dict[str, Any]:
    """What this process finds about its own cage: numbers of its namespaces, whether seccomp is on, whether / can be
    written."""
    spaces = {}
    for name in ("user", "mnt", "pid", "ipc", "net"):
        with contextlib.suppress(OSError):
            spaces[name] = os.stat(f"/proc/self/ns/{name}").st_ino
    spaces |= containers_own
    seccomp, privileges, capabilities = _from_status()
    return {
        "spaces": spaces, "seccomp": seccomp, "no_new_privs": privileges, "capabilities": capabilities,
        "read_only_root": not _root_can_be_written(), "uid": os.getuid(), "proc": bool(spaces),
        "first_process_open": _first_process_is_open(), "landlock": landlock.version(), "pid": os.getpid(),
    }  # fmt: skip


def seen_by_judge() -> dict[str, Any]:
    """The same for a judge, which must also be able to see when other processes have stopped."""
    return {**seen_from_inside(), "blind": _blind(), "gvisor": kernel.is_gvisor()}


def kernel_notes(own: Mapping[str, Any]) -> list[str]:
    """What a report has to say of the kernel that the judge runs on, whatever the level."""
    return [GVISOR] if own.get("gvisor") else []


def _blind() -> str:
    """Why a process of a submission's could seem to be gone while it runs; empty where none could.

    Where /proc hides other people's processes (hidepid), one that closes itself is hidden even from its own user.
    """
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return "this kernel doesn't list a process's children (/proc/PID/task/TID/children)"
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            prctl(PR_SET_DUMPABLE, 0)
            os.write(tell, b"x")
            signal.pause()
        finally:
            os._exit(0)
    try:
        os.read(told, 1)
        with open(f"/proc/{pid}/task/{pid}/stat", "rb") as file:
            return "" if file.read() else "/proc shows no other processes"
    except OSError:
        return "/proc hides processes from the judge (hidepid), so a submission's can't be seen to have stopped"
    finally:
        os.close(told)
        os.close(tell)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _root_can_be_written() -> bool:
    return _takes_files("/")


def _takes_files(folder: str) -> bool:
    probe = f"{folder.rstrip('/')}/.kb-probe-{os.getpid()}"
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(probe)
    except OSError as error:  # a disk that is full now may have space later
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
    return True


def places_left_open(places: Iterable[str]) -> list[str]:
    """The ones of these folders in which this process can leave a file."""
    return [place for place in places if _takes_files(place)]


def may_signal_its_own() -> bool:
    """Whether the kernel decides about this process's signals, rather than the filter refusing them."""
    try:
        os.kill(NOBODY, 0)
    except OSError as error:
        return error.errno == errno.ESRCH
    return True


def signals_get_out() -> bool:
    """Whether this process may signal the one that started it."""
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return False
    return True


def _from_status() -> tuple[int, int, str]:
    found = {"Seccomp": "", "NoNewPrivs": "", "CapEff": ""}
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name in found:
                found[name] = value.strip()
    # without a /proc in the cage, and in gVisor, whose /proc doesn't tell of privileges, the process itself is asked
    seccomp = int(found["Seccomp"] or libc.prctl(PR_GET_SECCOMP, 0, 0, 0, 0))
    return seccomp, int(found["NoNewPrivs"] or libc.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)), found["CapEff"]


def _first_process_is_open() -> bool:
    """Whether the memory of this PID namespace's first process, which is never ours, can be opened."""
    if os.getpid() == 1:
        return False
    try:
        os.close(os.open("/proc/1/mem", os.O_RDWR))
    except OSError:
        return False
    return True


def devices_left_open() -> list[str]:
    """The devices whose times this process can set: a bit that a later launch finds."""
    found = []
    for name in DEVICES:
        with contextlib.suppress(OSError):
            os.utime(f"/dev/{name}")
            found.append(f"/dev/{name}")
    return found


def node_left_open(folder: str) -> list[str]:
    """What of the node's own a runner in a container can still write to: files beside its link's, and what is mounted
    at /sys."""
    return [*places_left_open([folder]), *writable_below("/sys")]


def level_of(seen: Mapping[str, Any], own: Mapping[str, Any], *, container: bool) -> tuple[int, list[str]]:
    """The isolation level that follows from these findings, and what keeps it from being higher."""
    notes = []
    if blind := own.get("blind"):
        return 0, [str(blind)]
    if not (seen.get("seccomp") == 2 and seen.get("no_new_privs") == 1):
        return 0, ["no system call filter (seccomp)"]
    spaces, mine = seen.get("spaces", {}), own.get("spaces", {})
    if not seen.get("furnished") and spaces.get("mnt") in (None, mine.get("mnt")) and (why := _unconfined(seen, own)):
        return 0, [why]
    if seen.get("proc"):
        for name in ("pid", "mnt", "ipc", "net"):
            apart = spaces.get(name) not in (None, mine.get(name))
            if name == "pid" and seen.get("outer_pid"):  # an older gVisor makes up this namespace's number
                apart = seen.get("pid") != seen["outer_pid"]
            if not apart:
                notes.append(f"no {name} namespace of its own")
    elif not seen.get("furnished"):
        notes.append("its namespaces can't be seen (no /proc)")
    if not seen.get("read_only_root"):
        notes.append("its root is writable")
    if others := sorted(set(seen.get("interfaces") or ()) - {"lo"}):
        notes.append(f"network interfaces besides loopback are up: {', '.join(others)[:100]}")
    if strays := seen.get("strays"):
        notes.append(str(strays))
    if seen.get("first_process_open"):
        notes.append("the memory of its container's first process, which has no filter, is open to it")
    if (left := seen.get("open_devices")) and not own.get("gvisor"):  # gVisor's are the sandbox's own
        notes.append(f"times can be left for the next launch on {', '.join(map(str, left))[:200]}")
    if left := seen.get("open_node"):
        notes.append(f"what is the node's own is open to it: {', '.join(map(str, left))[:200]}")
    if notes:
        return 1, notes
    return (3 if container else 2), notes


def _unconfined(seen: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Why something that a runner writes outlives it, if it has the judge's file system; empty if nothing does."""
    if left := seen.get("open"):
        return f"files can be left for the next launch in {', '.join(map(str, left))[:200]}"
    if seen.get("signals"):
        return "processes of others can be signalled"
    if not int(seen.get("landlock") or 0):  # only the usual places are closed
        return "files can be left wherever its user may write (this kernel has no Landlock)"
    another = seen.get("uid") != own.get("uid") and int(str(seen.get("capabilities") or 0), 16) == 0
    if not another and int(seen.get("landlock") or 0) < landlock.TRUNCATES:
        return "files of its user can be emptied (this kernel's Landlock can't prevent it)"
    return ""
