"""The run's progress, for those who wait for it: heartbeat.json."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path


class Heartbeat:
    """heartbeat.json: the phase and its progress, at most once a second."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._last = path, 0.0
        self.phase, self.done, self.of = "start", 0, 0

    def beat(self, *, now: bool = False) -> None:
        """Write it if a second has passed, or at once."""
        at = time.monotonic()
        if self._path is None or (at - self._last < 1.0 and not now):
            return
        self._last = at
        told = {"at_ns": time.time_ns(), "phase": self.phase, "done": self.done, "of": self.of}
        try:
            put_file(self._path, json.dumps(told), lasting=False)
        except OSError:
            self._path = None  # a full disk loses the heartbeat, not the run

    def enter(self, phase: str, of: int) -> None:
        """Begin a phase of this many steps."""
        self.phase, self.done, self.of = phase, 0, of
        self.beat(now=True)

    def step(self) -> None:
        """Count one step."""
        self.done += 1
        self.beat()


def put_file(path: Path, text: str, *, lasting: bool = True) -> None:
    """Write the file atomically. `lasting`: it is on the disk when this returns, which may take a tenth of a second."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        fresh.rename(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
