"""What the daemon's main thread sleeps on: any thread, or any job on this machine, can wake it."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterable


class Wake:
    """A bell that any thread may ring, plus descriptors."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def ring(self) -> None:
        """Wake the waiter, now or when it next waits."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._write, b"!")

    def wait(self, timeout_s: float, doorbells: Iterable[int]) -> frozenset[int] | None:
        """Wait for the bell or a doorbell; returns which doorbells rang, or None on timeout. They are drained."""
        poller = select.poll()
        for fd in (self._read, *doorbells):
            poller.register(fd, select.POLLIN)
        rang = [fd for fd, _ in poller.poll(max(0.0, timeout_s) * 1000)]
        for fd in rang:
            _empty(fd)
        return frozenset(rang) - {self._read} if rang else None

    def close(self) -> None:
        """Close it; nothing may wait on it any more."""
        os.close(self._read)
        os.close(self._write)


def _empty(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while len(os.read(fd, 4096)) == 4096:
            pass
