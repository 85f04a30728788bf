"""What may lie in a runner's sockets: memory of the kernel's that is in no process's own, and in no limit but a control
group's."""

from __future__ import annotations

import contextlib
import os

USUAL = 64  # sockets that any runner may have, uncounted
BUFFER = 212_992  # bytes that one takes before its writer waits, unless this machine says otherwise


class SocketMemory:
    """At most what the sockets of one runner hold: its network namespace has no others. Nothing where it shares the
    judge's."""

    def __init__(self, pid: int) -> None:
        self._file = f"/proc/{pid}/net/sockstat"
        self._each = BUFFER
        self.counts = False
        with contextlib.suppress(OSError, ValueError):
            self.counts = os.stat(f"/proc/{pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino
            with open("/proc/sys/net/core/wmem_default", encoding="ascii") as file:
                self._each = int(file.read())

    def now(self) -> int:
        """In bytes."""
        if not self.counts:
            return 0
        with contextlib.suppress(OSError, ValueError, IndexError), open(self._file, encoding="ascii") as file:
            return max(0, int(file.readline().split()[2]) - USUAL) * self._each  # "sockets: used 27"
        return 0
