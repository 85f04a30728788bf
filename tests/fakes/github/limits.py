"""GitHub's secondary limits: who creates too much in a minute or an hour is locked out, without having been told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

LIMITS = ((80, 60.0), (500, 3600.0))


@dataclass
class Creating:
    """What was created when, and how often it was too much."""

    clock: Callable[[], float] = time.monotonic
    at: list[float] = field(default_factory=list)
    locked_out: int = 0

    def is_too_much(self, method: str, path: str) -> bool:
        """Note a call; whether it exceeds a limit."""
        if method != "POST" or "/actions/runs/" in path:
            return False
        now = self.clock()
        self.at.append(now)
        over = any(sum(at > now - within_s for at in self.at) > most for most, within_s in LIMITS)
        self.locked_out += over
        return over
