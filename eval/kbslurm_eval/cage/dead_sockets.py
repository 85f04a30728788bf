"""Sockets that nobody has open any more and that are on their way through one another, with all that is on its way with
them. The kernel finds them when somebody closes a socket. Its own threads let go of them one after another, some
milliseconds later each; until then they keep files, with their memory, and whoever is timed next has these threads
beside it."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterable

from kbslurm_eval.cage.kernel import is_gvisor
from kbslurm_eval.cage.kernel_memory import open_in

QUIET = 2  # rounds of the kernel's in which none went: the others are on their way to somebody who is there
MOST_S = 60.0
REFUSED_S = 0.02  # how long a round takes where it can't be seen
AGAIN_S = 0.2  # until the kernel is made to look once more


class DeadSockets:
    """Those of one runner, where it has a network namespace of its own. `many`: how many sockets there are in it."""

    def __init__(self, many: Callable[[], int | None]) -> None:
        self._many, self.waited_ns = many, 0
        self._looks = not is_gvisor()  # which doesn't look for them
        self._line: socket.socket | None = None

    def meets(self, line: socket.socket) -> None:
        """The judge has this end of a connection of the runner's. Both are counted where the runner is."""
        self._line = line

    def wait(self, pids: Callable[[], Iterable[int]]) -> None:
        """All of its processes, which are these, are stopped: until none is left, of which `waited_ns` counts. Not for
        those that stay, as connections do that nobody has accepted yet."""
        began, self.waited_ns = time.perf_counter_ns(), 0
        if self._looks and (there := self._many()):
            sockets, _, hidden = open_in(pids())
            known = self._in_the_line() if hidden else sockets + self._in_the_line(unseen=True)
            if there > known and (last_ns := self._until(known)):
                self.waited_ns = last_ns - began

    def wait_for_all(self) -> None:
        """The same once its processes have ended."""
        if self._looks and self._many():
            self._until(self._in_the_line())

    def _in_the_line(self, *, unseen: bool = False) -> int:
        """How many of its ends the kernel counts: both, as long as the judge has its own. `unseen`: without one that a
        process of the runner's has open."""
        if self._line is None or self._line.fileno() < 0:
            return 0
        asked = select.poll()
        asked.register(self._line, 0)  # it says unasked that the other end is closed
        return 2 if not unseen or asked.poll(0) else 1

    def _until(self, known: int) -> int:
        """Until no more than these are left, or none goes any more: when the last one went, or 0 if none did."""
        until, last_ns, quiet = time.monotonic() + MOST_S, 0, 0
        left = self._many() or 0
        while left > known and quiet < QUIET and time.monotonic() < until:
            _round()
            now = self._many() or 0
            if now < left:
                last_ns, quiet = time.perf_counter_ns(), -1
            left, quiet = now, quiet + 1
        if last_ns:
            for _ in range(QUIET):  # what is let go of together comes in any order
                _round()
        return last_ns


def _round() -> None:
    """Have the kernel look for dead sockets, and wait until it has let go of one of our own, and so of all that it had
    found before, however long that takes: whoever has it work for long isn't waited for the less."""
    here, there = socket.socketpair()
    reads, writes = os.pipe()
    try:
        socket.send_fds(there, [b"x"], [here.fileno(), writes])
        is_sent = True
    except OSError:  # this user has too many on their way
        is_sent = False
    os.close(writes)
    here.close()
    there.close()  # last: whoever closes one that isn't on its way makes the kernel look
    if not is_sent:
        time.sleep(REFUSED_S)
    until = time.monotonic() + MOST_S
    while is_sent and time.monotonic() < until and not select.select([reads], [], [], AGAIN_S)[0]:
        for end in socket.socketpair():
            end.close()
    os.close(reads)
