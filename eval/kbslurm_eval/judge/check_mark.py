"""`checking`, beside heartbeat.json: whether the judge is looking at a submission's answer at this moment.

Checks in Python run in the judge's own process, and an answer can make code that isn't Python's bring it down (numpy's
`repeat` writes where a sum of counts overflows). Such a judge leaves no report; whoever finds it ended by a signal of
its own while this mark stands knows that the answer is to blame, and not the machine. One byte, in a file that is open:
setting it takes a microsecond or two.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "checking"  # supervisors know it, too
STANDS, IS_DOWN = b"1", b"0"
CHECK_DIED = "the problem's check didn't survive this answer"
NATIVE_DEATHS = frozenset((signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV))


class CheckMark:
    """The mark. It is made before anything of a submission runs, so that the file is the judge's own."""

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._fd, self._stands = path, -1, False
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            os.write(self._fd, IS_DOWN + b"\n")
        except OSError:
            self._lose()  # a full disk loses the mark, not the run

    @contextmanager
    def up(self) -> Iterator[None]:
        """Set while the block runs."""
        self._set(True)
        try:
            yield
        finally:
            self._set(False)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Not set while the block runs: the problem's own answer is made, and no submission's looked at."""
        stood = self._stands
        if stood:
            self._set(False)
        try:
            yield
        finally:
            if stood:
                self._set(True)

    def close(self) -> None:
        """There is nothing more to look at. The file goes once there is a report: on a full disk, what its room lets
        through is a part of what comes next."""
        self._lose()

    def _set(self, stands: bool) -> None:
        self._stands = stands
        if self._fd < 0:
            return
        try:
            os.pwrite(self._fd, STANDS if stands else IS_DOWN, 0)
        except OSError:
            self._lose()

    def _lose(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
