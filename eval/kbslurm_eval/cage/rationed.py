"""Looks at a runner that are taken only as often as they are cheap beside the time that passes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

SHARE = 0.1  # of the time since a look that such looks may take
ASKED_SHARE = 0.02  # where somebody else has to look, who starts programs for it
LEAST_NS = 10_000_000  # and so long between two in any case


class Rationed:
    """When the next look of one kind is due."""

    def __init__(self, share: float = SHARE) -> None:
        self._share, self._next_ns = share, 0

    @property
    def is_due(self) -> bool:
        """Whether it is time for one."""
        return time.monotonic_ns() >= self._next_ns

    @contextmanager
    def look(self) -> Iterator[None]:
        """One look."""
        began = time.monotonic_ns()
        try:
            yield
        finally:
            took = time.monotonic_ns() - began
            self._next_ns = began + took + max(LEAST_NS, int(took / self._share))
