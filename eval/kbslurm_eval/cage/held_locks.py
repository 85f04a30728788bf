"""The locks that a runner's processes hold on ranges of files. The kernel keeps those of one file in one list and walks
it whenever anybody closes that file, /dev/null and the C library too, whether their holder is stopped or not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from kbslurm_eval.cage import seen_processes
from kbslurm_eval.cage.rationed import ASKED_SHARE, SHARE, Rationed
from kbslurm_eval.cage.seen_processes import Lookout, open_files

MOST = 128  # each is some 50 ns of every close of its file
FEW = 64  # open files: to ask each of them takes less than the node's own list, which stops everybody's locks for it
TOO_MANY = f"the submission holds more than {MOST:,} locks on ranges of files"
LINE = 40  # bytes of a lock in /proc/locks, at least


class HeldLocks:
    """Whether one runner holds too many, as of the last look."""

    def __init__(self, lookout: Lookout | None = None) -> None:
        self._looks, self._lookout = Rationed(ASKED_SHARE if lookout else SHARE), lookout
        self.too_many = False

    def look(self, pids: Iterable[int]) -> bool:
        """Whether these processes hold more than anybody needs, together."""
        if not self.too_many and self._looks.is_due:
            with self._looks.look():
                own = list(pids)
                self.too_many = (_have_few(own) or _many_there_are()) and _held_by(own, self._lookout) > MOST
        return self.too_many


def _have_few(pids: Iterable[int]) -> bool:
    """Whether these processes have so few files open that each can be asked."""
    with contextlib.suppress(PermissionError):
        return sum(len(open_files(pid)[1]) for pid in pids) <= FEW
    return False


def _many_there_are() -> bool:
    """Whether so many exist on this node, whoever holds them."""
    size = 0
    with contextlib.suppress(OSError), open("/proc/locks", "rb", buffering=0) as file:
        while size < MOST * LINE and (part := file.read(1 << 16)):
            size += len(part)
    return size >= MOST * LINE


def _held_by(pids: Iterable[int], lookout: Lookout | None) -> int:
    """How many of them these processes hold. A descriptor shows those that were made by way of its own open file, and
    so does each copy of it."""
    seen, alike = set[bytes](), 0
    for line in seen_processes.lines(pids, "lock", lookout):
        told = line.split(b" ", 1)[1]  # without its number there
        if told.startswith(b"FLOCK"):  # of a whole file: each open one may have its own, all alike
            alike += 1
        seen.add(told)
        if len(seen) + alike > MOST:
            break
    return MOST + 1 if lookout is not None and lookout.was_cut else len(seen) + alike
