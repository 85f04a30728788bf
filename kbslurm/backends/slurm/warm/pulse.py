"""Whether a keeper lives, as its own file says: by how long ago that changed, by our clock and never by its node's."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kbslurm.backends.slurm.warm.keeper_folder import KeeperFolder

SILENT_S = 30.0  # it is rewritten every few seconds
REMEMBERED = 1000


class Pulse:
    """Remembers what each keeper last said, and when that was new. A new process trusts what it finds first, for a
    while: it asks nobody about keepers that do well."""

    def __init__(self, monotonic: Callable[[], float], delay_s: float) -> None:
        self._now, self._patience_s = monotonic, SILENT_S + delay_s
        self._lock = threading.Lock()
        self._heard: dict[str, tuple[bytes, float]] = {}

    def beats(self, keeper: KeeperFolder) -> bool:
        """Whether it said something new lately. OSError if its folder can't be read."""
        said = keeper.said()  # half of it says as much: somebody is writing it
        with self._lock:
            if said is None:
                return False
            before = self._heard.get(keeper.name)
            if before is None or before[0] != said:
                self._heard[keeper.name] = (said, self._now())
                self._forget_old()
                return True
            return self._now() < before[1] + self._patience_s

    def _forget_old(self) -> None:
        """Those that have been silent for longest, once there are very many. A keeper's end isn't a reason to forget
        it: who forgets trusts again, and attempts in it may still be open."""
        if len(self._heard) > REMEMBERED:
            for name, _ in sorted(self._heard.items(), key=lambda one: one[1][1])[: REMEMBERED // 2]:
                del self._heard[name]
