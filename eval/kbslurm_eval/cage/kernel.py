"""System calls that Python has no function for, through the C library, and their numbers."""

from __future__ import annotations

import ctypes
import os
import resource

TYPE_CHECKING = False  # what starts with each launch imports neither `typing` nor anything else that takes long
if TYPE_CHECKING:
    from typing import Any

NEW_NS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
NEW_CGROUP = 0x02000000
ALL_NEW = NEW_NS | NEW_UTS | NEW_IPC | NEW_USER | NEW_PID | NEW_NET
CLONE_PARENT = 0x8000
CLONE_FILES, CLONE_THREAD = 0x400, 0x10000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_TIMERSLACK = 1, 4, 22, 29
PR_GET_SECCOMP, PR_GET_NO_NEW_PRIVS, PR_SET_SECUREBITS, PR_SET_THP_DISABLE = 21, 39, 28, 41
PR_SET_KEEPCAPS, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 8, 36, 38, 47
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
SYSLOG_ACTION_READ_ALL = 3
SOCK_STREAM, SOCK_SEQPACKET = 1, 5  # as the module `socket` has them, which takes long to import
SIGKILL, SIGCHLD, SIGCONT, SIG_IGN = 9, 17, 18, 1  # and `signal`

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class CageError(OSError):
    """A part of the cage isn't available here."""


def libc_call(name: str, *args: Any) -> int:
    """Call a function of the C library; CageError with the reason if it fails."""
    ctypes.set_errno(0)
    done = int(getattr(libc, name)(*args))
    if done == -1:
        code = ctypes.get_errno()
        raise CageError(code, f"{name}: {os.strerror(code)}")
    return done


_seen_gvisor: list[bool] = []


def is_gvisor() -> bool:
    """Its log of the kernel's messages, which anybody may read, always begins so; Linux gives the latest ones. Asked
    once: Linux looks through all of them, for some milliseconds."""
    if not _seen_gvisor:
        text = ctypes.create_string_buffer(64)
        many = int(libc.klogctl(SYSLOG_ACTION_READ_ALL, text, len(text) - 1))
        _seen_gvisor.append(many > 0 and b"Starting gVisor" in text.value)
    return _seen_gvisor[0]


def prctl(option: int, value: int = 0) -> None:
    """prctl(2), or CageError."""
    libc_call("prctl", option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def hide_judge() -> list[str]:
    """From now on no process of the same user may inspect this one, and orphans of its runners become its children."""
    troubles = []
    for option, value, said in (
        (PR_SET_DUMPABLE, 0, "the judge's memory can't be protected from its user's other processes"),
        (PR_SET_CHILD_SUBREAPER, 1, "orphans of a runner can't be caught"),
        (PR_SET_TIMERSLACK, 1, "timers are coarse"),
    ):
        try:
            prctl(option, value)
        except OSError:
            troubles.append(said)
    forbid_cores()
    return troubles


def forbid_cores() -> None:
    """From here on no crash leaves a core, and none starts the handler that the machine may have for them: with a limit
    of 0 the kernel would, with one byte it takes the handler to have crashed itself. Who isn't root can't raise what
    a site or a shell made 0 for good."""
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    except (ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
