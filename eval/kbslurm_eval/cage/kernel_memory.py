"""What a runner's open files hold of the kernel's own memory: it is in no process's, and in no limit but a control
group's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from kbslurm_eval.cage.user_counts import watched

USUAL = 64  # sockets that any runner may have, uncounted; whoever has fewer files than that holds hardly anything
INTERPRETERS = 16  # files that an interpreter has open in a runner
BUFFER = 212_992  # bytes that a socket takes before its writer waits, unless this machine says otherwise
WATCH = 200  # bytes of a descriptor in a poller


class KernelMemory:
    """At most what the sockets and pollers of one runner hold. Its network namespace has no other sockets; where it
    shares the judge's, those that its processes have open are counted."""

    def __init__(self, pid: int) -> None:
        self._file = f"/proc/{pid}/net/sockstat"
        self._each = BUFFER
        self._is_apart = False
        with contextlib.suppress(OSError, ValueError):
            self._is_apart = os.stat(f"/proc/{pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino
            with open("/proc/sys/net/core/wmem_default", encoding="ascii") as file:
                self._each = int(file.read())

    def now(self, pids: Iterable[int]) -> int:
        """In bytes; `pids`: its processes."""
        own = list(pids)
        sockets, watches = _open_in(own if sum(map(_more_than_usual, own)) > USUAL else [])
        if self._is_apart:
            sockets = self._sockets_there()
        return max(0, sockets - USUAL) * self._each + watches * WATCH

    def _sockets_there(self) -> int:
        with contextlib.suppress(OSError, ValueError, IndexError), open(self._file, encoding="ascii") as file:
            return int(file.readline().split()[2])  # "sockets: used 27"
        return 0


def _more_than_usual(pid: int) -> int:
    """How many more files it has open than an interpreter does."""
    with contextlib.suppress(OSError):  # it is gone, or doesn't let that be seen
        many = os.stat(f"/proc/{pid}/fd").st_size or len(os.listdir(f"/proc/{pid}/fd"))  # older kernels don't tell
        return max(0, many - INTERPRETERS)
    return 0


def _open_in(pids: Iterable[int]) -> tuple[int, int]:
    """How many sockets these have open, each once, and how many descriptors are in their pollers."""
    sockets, watches = set[str](), 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    told = os.readlink(f"/proc/{pid}/fd/{fd}")
                    if told.startswith("socket:"):
                        sockets.add(told)
                    elif told == "anon_inode:[eventpoll]":
                        watches += watched(pid, fd)
    return len(sockets), watches
