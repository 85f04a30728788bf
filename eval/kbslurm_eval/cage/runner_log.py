"""Reading what a runner writes to stdout and stderr."""

from __future__ import annotations

import contextlib
import os
import select
import threading

from kbslurm_eval.cage.runners import CALL_STOP_S
from kbslurm_eval.shared.wire import LOG_CAP


class RunnerLog:
    """Reads what a runner writes, keeps the first part of it and drops the rest: a flood costs nothing but its own
    time."""

    def __init__(self, fd: int, cap: int) -> None:
        self._fd, self._cap = fd, min(cap, LOG_CAP)
        self._kept, self._dropped = bytearray(), 0
        self._woken, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._read, name="log", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        last = False
        with contextlib.suppress(OSError, ValueError):
            while True:
                watched = [self._fd] if last else [self._fd, self._woken]
                ready = select.select(watched, [], [], 0 if last else None)[0]
                last = last or self._woken in ready
                if self._fd in ready:
                    part = os.read(self._fd, 1 << 16)
                    if not part:
                        return
                    room = max(0, self._cap - len(self._kept))
                    self._kept += part[:room]
                    self._dropped += len(part) - min(room, len(part))
                elif last:
                    return

    def text(self) -> str:
        """What was kept, and a line that says how much was dropped. The writers have ended, so this is all."""
        os.write(self._wake, b"x")
        self._thread.join(CALL_STOP_S)
        for fd in (self._fd, self._woken, self._wake):
            with contextlib.suppress(OSError):
                os.close(fd)
        text = bytes(self._kept).decode("utf-8", "replace")
        return text + (f"\n[{self._dropped} bytes more were dropped]" if self._dropped else "")
