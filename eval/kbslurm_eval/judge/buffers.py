"""Memory for inputs and outputs that the judge uses again from call to call.

Memory that is fresh from the system has to be cleared and mapped page by page, which takes several times as long as
copying the bytes that go there; a call with 64 MB of inputs spent most of its time on that. Nothing here is shared with
another process. A buffer is given out again only when nothing refers to it any more: a problem's own code may keep an
array that lies in one.
"""

from __future__ import annotations

import mmap
import os
import sys

LEAST = 1 << 18  # what is smaller comes from the allocator, which keeps that much anyway
GRAIN = 1 << 21
IDLE_CAP = 4 << 30
IDLE_SHARE = 8  # at most this part of the machine's memory is kept for later
IDLE_REFERENCES = 2  # the list's and the question's own


class Buffers:
    """The buffers of one process."""

    def __init__(self, idle_cap: int | None = None) -> None:
        self._all: list[mmap.mmap] = []
        self._idle_cap = _idle_cap() if idle_cap is None else idle_cap

    def room(self, size: int) -> memoryview:
        """Writable memory of this size, with whatever is in it."""
        if size < LEAST:
            return memoryview(bytearray(size))
        fitting = [
            n for n in range(len(self._all)) if size <= len(self._all[n]) <= 2 * size + GRAIN and self._is_idle(n)
        ]
        if fitting:
            best = min(fitting, key=lambda n: len(self._all[n]))
            self._all.append(self._all.pop(best))
            return memoryview(self._all[-1])[:size]
        self._spare(size)
        fresh = mmap.mmap(-1, -(-size // GRAIN) * GRAIN, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                fresh.madvise(mmap.MADV_HUGEPAGE)
            except OSError:
                pass  # a kernel without them
        self._all.append(fresh)
        return memoryview(fresh)[:size]

    def copy(self, data: bytes | bytearray | memoryview) -> memoryview:
        """A writable copy that shares nothing with others."""
        if len(data) < LEAST:
            return memoryview(bytearray(data))
        room = self.room(len(data))
        room[:] = data
        return room

    def _is_idle(self, number: int) -> bool:
        return sys.getrefcount(self._all[number]) <= IDLE_REFERENCES

    def _spare(self, size: int) -> None:
        """Give back those that have been idle longest until, with this one, no more than the cap is kept."""
        whole, number = size + sum(map(len, self._all)), 0
        while whole > self._idle_cap and number < len(self._all):
            if self._is_idle(number):
                whole -= len(self._all.pop(number))
            else:
                number += 1


def _idle_cap() -> int:
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return IDLE_CAP
    return min(IDLE_CAP, whole // IDLE_SHARE)


BUFFERS = Buffers()
