"""Descriptors on their way through a runner's sockets: what they stand for (files, pipes, pollers) is in nobody's list
of open files, and so in no count."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

MOST = 32  # Python's own way of handing one on takes each at once
TOO_MANY = f"the submission has more than {MOST} open files on their way through sockets"
SHARE = 0.1  # of the time since a look that such looks may take
LEAST_NS = 10_000_000  # and so long between two in any case


class SentDescriptors:
    """Whether one runner has too many of them, as of the last look."""

    def __init__(self) -> None:
        self._next_ns = 0
        self.too_many = False

    def look(self, pids: Iterable[int]) -> bool:
        """Whether these processes' sockets hold more than anybody needs, together."""
        if not self.too_many and (began := time.monotonic_ns()) >= self._next_ns:
            self.too_many = sum(map(_sent_by, pids)) > MOST
            took = time.monotonic_ns() - began
            self._next_ns = began + took + max(LEAST_NS, int(took / SHARE))
        return self.too_many


def _sent_by(pid: int) -> int:
    many = 0
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError, ValueError):
                if os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:"):
                    with open(f"/proc/{pid}/fdinfo/{fd}", "rb") as file:
                        many += sum(int(line.split()[1]) for line in file if line.startswith(b"scm_fds:"))
    return many
