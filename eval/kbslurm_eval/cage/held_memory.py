"""The memory of a runner's processes, looked at after each call, for a bounded part of the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from kbslurm_eval.cage.processes import resident_bytes

SHARE = 0.1  # of the time since a look that counted shared pages once, that such looks may take


class HeldMemory:
    """What one runner holds.

    Where the plain sum is over the limit, the kernel has to walk every page of every process to tell shared ones apart:
    24 processes that share 800 MB cost it half a second. So that look is taken again only when the sum has grown, or
    when it has become cheap beside the time that has passed.
    """

    def __init__(self, limit: int, hidden: Callable[[Sequence[int]], Mapping[int, int]] = lambda _: {}) -> None:
        self._limit, self._hidden = limit, hidden
        self._held = self._sum = self._next_ns = 0
        self.walks = 0

    def now(self, pids: list[int], of: Callable[[int], int]) -> int:
        """Their memory in bytes, pages that they share counted once."""
        resident = sum(map(of, pids))
        if resident <= self._limit or len(pids) < 2:
            return resident
        grown = resident - self._sum
        if grown <= 0 and time.monotonic_ns() < self._next_ns:
            return self._held
        if grown > 0 and self._held + grown <= self._limit and time.monotonic_ns() < self._next_ns:
            return self._held + grown  # at most
        began = time.monotonic_ns()
        self._held, self._sum = resident_bytes(pids, self._limit, of, self._hidden), resident
        self.walks += 1
        took = time.monotonic_ns() - began
        self._next_ns = began + took + int(took / SHARE)
        return self._held
