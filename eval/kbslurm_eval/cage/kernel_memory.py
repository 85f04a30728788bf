"""What a runner's open files hold of the kernel's own memory: it is in no process's, and in no limit but a control
group's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence

from kbslurm_eval.cage.rationed import Rationed
from kbslurm_eval.cage.seen_processes import CantSee, Lookout, is_hidden, is_inside, open_files

USUAL = 64  # sockets that any runner may have, uncounted; whoever has fewer files than that holds hardly anything
INTERPRETERS = 16  # files that an interpreter has open in a runner
BUFFER = 212_992  # bytes that a socket takes before its writer waits, unless this machine says otherwise
WATCH = 200  # bytes of a descriptor in a poller


class KernelMemory:
    """At most what the sockets and pollers of one runner hold. Its network namespace has no other sockets; where it
    shares the judge's, those that its processes have open are counted."""

    def __init__(self, pid: int, lookout: Lookout | None = None) -> None:
        self._told_at: int | None = None  # kept open: it tells as much once all processes have ended
        self._lookout, self._looks, self._watches = lookout, Rationed(), 0
        self._each = BUFFER
        file = "/proc/sys/net/core/wmem_default"
        with contextlib.suppress(OSError, ValueError), open(file, encoding="ascii") as told:
            self._each = int(told.read())
        if lookout is None and _is_apart(pid):
            self._look_at(pid)

    def close(self) -> None:
        """Nobody asks any more."""
        if self._told_at is not None:
            os.close(self._told_at)
            self._told_at = None

    def now(self, pids: Iterable[int], *, rests: bool = True) -> int:
        """In bytes; `pids`: its processes. `rests`: all of them are stopped, so that there is time to ask."""
        own = list(pids)
        many = own if sum(map(_more_than_usual, own)) > USUAL else []
        sockets, watches, hidden = open_in(many)
        if hidden and self._lookout is not None:
            watches += self._told_of(hidden, self._lookout, rests)
        if (apart := self.sockets(own)) is not None:
            sockets = apart
        return max(0, sockets - USUAL) * self._each + watches * WATCH

    def sockets(self, pids: Iterable[int]) -> int | None:
        """How many there are in its network namespace; None where that is the judge's, too."""
        if self._told_at is None and self._lookout is not None:
            # a container's program is beside it, in a network namespace of neither
            for pid in pids:
                if is_inside(pid) and _is_apart(pid):
                    self._look_at(pid)
                    break
        return self.sockets_there()

    def sockets_there(self) -> int | None:
        """The same, where that namespace is known."""
        if self._told_at is None:
            return None
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(os.pread(self._told_at, 64, 0).split(None, 3)[2])  # "sockets: used 27"
        return None if self._lookout is not None else 0

    def _look_at(self, pid: int) -> None:
        with contextlib.suppress(OSError):
            self._told_at = os.open(f"/proc/{pid}/net/sockstat", os.O_RDONLY | os.O_CLOEXEC)

    def _told_of(self, pids: Sequence[int], lookout: Lookout, rests: bool) -> int:
        """How many descriptors are in the pollers of those that the judge can't look at, as of the last look."""
        if rests and self._looks.is_due:
            with self._looks.look(), contextlib.suppress(CantSee):
                self._watches = sum(int(many) for told in lookout.look(pids, "tfd").values() for many in told)
        return self._watches


def _is_apart(pid: int) -> bool:
    """Whether its network namespace is another one than this process's. Who may not ask which one it is looks at a file
    that each has for itself."""
    with contextlib.suppress(OSError):
        try:
            return os.stat(f"/proc/{pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino
        except PermissionError:
            return os.stat(f"/proc/{pid}/net/sockstat").st_ino != os.stat("/proc/self/net/sockstat").st_ino
    return False


def _more_than_usual(pid: int) -> int:
    """How many more files it has open than an interpreter does."""
    with contextlib.suppress(OSError):  # it is gone
        many = os.stat(f"/proc/{pid}/fd").st_size or len(open_files(pid)[1])  # older kernels don't tell
        return max(0, many - INTERPRETERS)
    return 0


def open_in(pids: Iterable[int]) -> tuple[int, int, list[int]]:
    """How many sockets these have open, each once, how many descriptors are in their pollers, and who of them doesn't
    let that be seen."""
    sockets, watches, hidden = set[str](), 0, list[int]()
    for pid in pids:
        if is_hidden(pid):
            hidden.append(pid)
            continue
        with contextlib.suppress(OSError):
            place, names = open_files(pid)
            for fd in names:
                with contextlib.suppress(OSError):
                    told = os.readlink(f"{place}/fd/{fd}")
                    if told.startswith("socket:"):
                        sockets.add(told)
                    elif told == "anon_inode:[eventpoll]":
                        with open(f"{place}/fdinfo/{fd}", "rb") as file:
                            watches += file.read().count(b"tfd:")
    return len(sockets), watches, hidden
