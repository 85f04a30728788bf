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

STAYS_S = 0.05  # as many as before for so long: they are on their way to somebody who is there
MOST_S = 60.0
LOOK_S = 0.0005
LET_GO_S = 1.0
BEGUN_NS = 1_000_000  # in a shorter call the kernel hasn't begun to let go of what was found dead in it
FREED_LOOK_S, FREED_MOST_S = 0.0001, 1.0  # between two looks at the memory of files
FREED_KB = 1024  # so much less at the second one is much


class DeadSockets:
    """Those of one runner, where it has a network namespace of its own. `many`: how many sockets there are in it."""

    def __init__(self, many: Callable[[], int | None]) -> None:
        self._many, self._went_at_ns = many, time.perf_counter_ns()
        self.waited_ns = 0

    def go_on(self) -> None:
        """Its processes are about to."""
        self._went_at_ns = time.perf_counter_ns()

    def wait(self, pids: Callable[[], Iterable[int]]) -> None:
        """All of its processes, which are these, are stopped: until none is left, of which `waited_ns` counts. Not for
        those that stay, as connections do that nobody has accepted yet."""
        began, self.waited_ns = time.perf_counter_ns(), 0
        if there := self._many():
            own = list(pids())
            known = 0 if any(map(is_hidden, own)) else _open_in(own)
            if there > known and (last_ns := self._until(known)):
                self.waited_ns = last_ns - began
                return
        if began - self._went_at_ns >= BEGUN_NS:
            _until_nothing_is_freed()

    def wait_for_all(self) -> None:
        """The same once its processes have ended."""
        if self._many():
            self._until(0)

    def _until(self, known: int) -> int:
        """Until no more than these are left, or none goes for a while: when the last one went, or 0 if none did."""
        _close_one()
        began, last_ns = time.monotonic(), 0
        changed, left = began, self._many() or 0
        while left > known and time.monotonic() - changed < STAYS_S and time.monotonic() - began < MOST_S:
            time.sleep(LOOK_S)
            if (now := self._many() or 0) < left:
                left, changed, last_ns = now, time.monotonic(), time.perf_counter_ns()
        if last_ns:
            for _ in range(2):  # what is let go of together comes in any order
                _let_go_of_one()
        return last_ns


def _close_one() -> None:
    """Whoever closes a socket makes the kernel look for dead ones."""
    for end in socket.socketpair():
        end.close()


def _let_go_of_one() -> None:
    """Wait until the kernel has let go of a dead socket of our own, and so of all that came before."""
    here, there = socket.socketpair()
    reads, writes = os.pipe()
    with contextlib.suppress(OSError):  # this user may have too many on their way
        socket.send_fds(there, [b"x"], [here.fileno(), writes])
    os.close(writes)
    here.close()
    there.close()
    _close_one()
    with contextlib.suppress(OSError):
        select.select([reads], [], [], LET_GO_S)
    os.close(reads)


def _until_nothing_is_freed() -> None:
    """Wait while the memory of files becomes less: everything that was let go of together is found at once, but whoever
    has large files takes long. On whose behalf can't be told, so that it is nobody's bill."""
    until = time.monotonic() + FREED_MOST_S
    with contextlib.suppress(OSError, ValueError):
        fd = os.open("/proc/meminfo", os.O_RDONLY | os.O_CLOEXEC)
        try:
            before = _in_files(fd)
            while time.monotonic() < until:
                time.sleep(FREED_LOOK_S)
                now = _in_files(fd)
                if before - now < FREED_KB:
                    break
                before = now
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
