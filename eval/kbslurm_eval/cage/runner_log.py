"""Reading what a runner writes to stdout and stderr."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import termios
import threading
from collections.abc import Sequence

from kbslurm_eval.cage.runners import CALL_STOP_S
from kbslurm_eval.shared.wire import LOG_CAP


class RunnerLog:
    """Reads what a runner writes, keeps the first part of it and drops the rest: a flood costs nothing but its own
    time."""

    def __init__(self, fd: int, cap: int) -> None:
        self._fd, self._cap = fd, min(cap, LOG_CAP)
        self._kept, self._dropped = bytearray(), 0
        os.set_blocking(fd, False)  # whoever writes to a pipe may read from it, too, and take what was there
        self._lock = threading.Lock()
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
                    with contextlib.suppress(BlockingIOError):
                        if not self._take():
                            return
                elif last:
                    return

    def _take(self) -> int:
        """Read what is there; 0 at the end."""
        with self._lock:
            part = os.read(self._fd, 1 << 16)
            room = max(0, self._cap - len(self._kept))
            self._kept += part[:room]
            self._dropped += len(part) - min(room, len(part))
            return len(part)

    def written(self) -> int:
        """How many bytes its writers, who are stopped now, have written so far."""
        waiting = bytearray(4)
        with self._lock, contextlib.suppress(OSError):
            fcntl.ioctl(self._fd, termios.FIONREAD, waiting)
            return len(self._kept) + self._dropped + int(struct.unpack("i", waiting)[0])
        return 0

    def parts(self, cuts: Sequence[int]) -> list[str]:
        """The text in one piece more than there are cuts, which are numbers of bytes in order. Only after `text`."""
        ends = [*(min(one, len(self._kept)) for one in cuts), len(self._kept)]
        found = [bytes(self._kept[a:b]).decode("utf-8", "replace") for a, b in zip([0, *ends], ends, strict=False)]
        return [*found[:-1], found[-1] + self._told_of_dropped()]

    def _told_of_dropped(self) -> str:
        return f"\n[{self._dropped} bytes more were dropped]" if self._dropped else ""

    def text(self) -> str:
        """What was kept, and a line that says how much was dropped. The writers have ended, so this is all."""
        os.write(self._wake, b"x")
        self._thread.join(CALL_STOP_S)
        for fd in (self._fd, self._woken, self._wake):
            with contextlib.suppress(OSError):
                os.close(fd)
        text = bytes(self._kept).decode("utf-8", "replace")
        return text + self._told_of_dropped()
