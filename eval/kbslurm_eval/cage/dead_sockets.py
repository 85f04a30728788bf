"""Sockets that nobody has open any more and that are on their way through one another, with all that is on its way with
them. The kernel finds them when somebody closes a socket. Its own threads let go of them one after another, some
milliseconds later each; until then they keep files, with their memory, and whoever is timed next has these threads
beside it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Iterable

from kbslurm_eval.cage.seen_processes import is_hidden, open_files

QUIET = 2  # rounds of the kernel's in which none went: the others are on their way to somebody who is there
MOST_S = 60.0
LET_GO_S, REFUSED_S = 1.0, 0.02  # how long a round may take, and takes for whom it can't be seen
COARSE_CLOCK = 6  # CLOCK_MONOTONIC_COARSE, which goes on with each tick of the kernel's
FREED_LOOK_S, FREED_MOST_S = 0.0001, 1.0  # between two looks at the memory of files
FREED_QUIET = 5  # looks in which it doesn't become less; it is counted in parts of half a megabyte


class DeadSockets:
    """Those of one runner, where it has a network namespace of its own. `many`: how many sockets there are in it."""

    def __init__(self, many: Callable[[], int | None]) -> None:
        self._many, self._went_at_ns = many, time.perf_counter_ns()
        self._tick_ns, self._is_blind = 0, False
        with contextlib.suppress(OSError):
            self._tick_ns = int(time.clock_getres(COARSE_CLOCK) * 1e9)
        self.waited_ns = 0

    def go_on(self) -> None:
        """Its processes are about to."""
        self._went_at_ns = time.perf_counter_ns()

    def wait(self, pids: Callable[[], Iterable[int]]) -> None:
        """All of its processes, which are these, are stopped: until none is left, of which `waited_ns` counts. Not for
        those that stay, as connections do that nobody has accepted yet."""
        began, self.waited_ns = time.perf_counter_ns(), 0
        if not self._is_blind and (there := self._many()):
            own = list(pids())
            known = 0 if any(map(is_hidden, own)) else _open_in(own)
            if there > known and (last_ns := self._until(known)):
                self.waited_ns = last_ns - began
                return
        if (
            began - self._went_at_ns >= self._tick_ns
        ):  # in a shorter call it hasn't begun with what was found dead in it
            _until_nothing_is_freed()

    def wait_for_all(self) -> None:
        """The same once its processes have ended."""
        if self._many():
            self._until(0)

    def _until(self, known: int) -> int:
        """Until no more than these are left, or none goes any more: when the last one went, or 0 if none did."""
        until, last_ns, quiet = time.monotonic() + MOST_S, 0, 0
        left = self._many() or 0
        while left > known and quiet < QUIET and time.monotonic() < until:
            if not _round():
                self._is_blind = True  # gVisor never lets go of them
                break
            now = self._many() or 0
            if now < left:
                last_ns, quiet = time.perf_counter_ns(), -1
            left, quiet = now, quiet + 1
        if last_ns:
            for _ in range(QUIET):  # what is let go of together comes in any order
                _round()
        return last_ns


def _round() -> bool:
    """Have the kernel look for dead sockets, and wait until it has let go of one of our own, and so of all that it had
    found before. False if it doesn't."""
    here, there = socket.socketpair()
    reads, writes = os.pipe()
    try:
        socket.send_fds(there, [b"x"], [here.fileno(), writes])
        is_sent = True
    except OSError:  # this user has too many on their way
        is_sent = False
    os.close(writes)
    here.close()
    there.close()  # whoever closes one makes the kernel look
    try:
        if is_sent:
            return bool(select.select([reads], [], [], LET_GO_S)[0])
        time.sleep(REFUSED_S)
        return True
    finally:
        os.close(reads)


def _until_nothing_is_freed() -> None:
    """Wait while the memory of files becomes less: everything that was let go of together is found at once, but whoever
    has large files takes long. On whose behalf can't be told, so that it is nobody's bill."""
    until, quiet = time.monotonic() + FREED_MOST_S, 0
    with contextlib.suppress(OSError, ValueError):
        fd = os.open("/proc/meminfo", os.O_RDONLY | os.O_CLOEXEC)
        try:
            least = _in_files(fd)
            while quiet < FREED_QUIET and time.monotonic() < until:
                time.sleep(FREED_LOOK_S)
                now = _in_files(fd)
                least, quiet = min(least, now), 0 if now < least else quiet + 1
        finally:
            os.close(fd)


def _in_files(fd: int) -> int:
    told = os.pread(fd, 4096, 0)
    at = told.index(b"\nCached:") + 8
    return int(told[at : told.index(b"kB", at)])


def _open_in(pids: Iterable[int]) -> int:
    """How many sockets these have open, each once."""
    found = set[str]()
    for pid in pids:
        with contextlib.suppress(OSError):
            place, names = open_files(pid)
            for fd in names:
                with contextlib.suppress(OSError):
                    told = os.readlink(f"{place}/fd/{fd}")
                    if told.startswith("socket:"):
                        found.add(told)
    return len(found)
