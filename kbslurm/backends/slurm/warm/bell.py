"""A doorbell for attempts in keepers: it rings when one of them begins or ends, by its files and without Slurm.

Runs there are short, and the daemon's own look comes once a second.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection
from pathlib import Path

from kbslurm.domain.run import JobName

LOOK_EVERY_S = 0.1
TOLD_BY = frozenset({"claim", "exit.json"})


class Bell:
    """Watches the folders of so many attempts, in a thread that only lives while there are any."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._pipe: tuple[int, int] | None = None
        self._watched: dict[JobName, frozenset[str]] = {}
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def descriptor(self) -> int:
        """What becomes readable."""
        with self._lock:
            if self._pipe is None:
                self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            return self._pipe[0]

    def watch(self, names: Collection[JobName], *, only: bool = False) -> None:
        """Watch these too, or only these. Without a descriptor nobody listens, and nothing is watched."""
        with self._lock:
            if self._pipe is None or self._over.is_set():
                return
            kept = {} if only else dict(self._watched)
            self._watched = kept | {name: self._watched.get(name, frozenset()) for name in names}
            if self._watched and self._thread is None:
                self._thread = threading.Thread(target=self._look, name="warm-bell", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the thread and close the descriptor."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        with self._lock:
            for fd in self._pipe or ():
                os.close(fd)
            self._pipe = None

    def _look(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            with self._lock:
                watched = dict(self._watched)
                if not watched:
                    self._thread = None
                    return
            found = {name: self._signs(name) for name in watched}
            with self._lock:
                news = [name for name in found if name in self._watched and found[name] != self._watched[name]]
                for name in news:
                    self._watched[name] = found[name]
                if news and self._pipe is not None:
                    with contextlib.suppress(BlockingIOError):
                        os.write(self._pipe[1], b"!")

    def _signs(self, name: JobName) -> frozenset[str]:
        """Listing the folder makes a network file system look anew."""
        try:
            return TOLD_BY & {entry.name for entry in (self._root / name).iterdir()}
        except OSError:
            return frozenset()
