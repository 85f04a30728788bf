"""What the kernel counts for a user on the whole node, in no limit of a process: whoever has all of it has others' runs
fail, as long as both are the same user's."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
from collections.abc import Iterable
from typing import Literal

from kbslurm_eval.cage.rationed import Rationed
from kbslurm_eval.cage.seen_processes import CantSee, Lookout, lines

Kind = Literal["pipes", "pollers"]

USUAL_PIPE = 65_536  # bytes that a pipe holds
LEAST_PIPES, LEAST_POLLED = 16_384, 100_000  # pages of pipes and descriptors in pollers, if this machine doesn't say
PART = 4  # who has more than a quarter is to blame
TOLD: dict[Kind, str] = {
    "pipes": "holds more pipes than its share of what this node has for one user",
    "pollers": "has more descriptors in pollers (epoll) than its share of what this node has for one user",
}
LEFT: dict[Kind, str] = {"pipes": "the pipes", "pollers": "the room in pollers (epoll)"}
_F_GETPIPE_SZ = 1032


def short() -> Kind | None:
    """What this process's user has none left of, if anything."""
    try:
        ends = os.pipe()
    except OSError as error:  # where a machine sets a hard limit, too
        return "pipes" if error.errno == errno.ENFILE else None
    try:
        with contextlib.suppress(OSError):  # gVisor's pipes have no size
            if 0 < fcntl.fcntl(ends[0], _F_GETPIPE_SZ) < USUAL_PIPE:
                return "pipes"
        with select.epoll() as poller:
            poller.register(ends[0], select.EPOLLIN)
    except OSError as error:
        return "pollers" if error.errno == errno.ENOSPC else None
    finally:
        for end in ends:
            os.close(end)
    return None


def hoarded(pids: Iterable[int]) -> str:
    """What there is too little left of because of these processes, in a sentence; empty if nothing."""
    kind = short()
    return f"the submission {TOLD[kind]}" if kind is not None and hoards(pids, kind) else ""


class Hoarded:
    """The same of one runner that somebody else has to look at for the judge: only so often."""

    def __init__(self, lookout: Lookout) -> None:
        self._lookout, self._looks = lookout, Rationed()

    def look(self, pids: Iterable[int]) -> str:
        """What there is too little left of because of these processes, in a sentence; empty if nothing."""
        if (kind := short()) is None or not self._looks.is_due:
            return ""
        with self._looks.look():
            return f"the submission {TOLD[kind]}" if hoards(pids, kind, self._lookout) else ""


def hoards(pids: Iterable[int], kind: Kind, lookout: Lookout | None = None) -> bool:
    """Whether these stopped processes have more of it than a run needs, or don't let that be seen. Where nobody can see
    it, they don't."""
    own = list(pids)
    try:
        if any(int(line.split()[1]) > 0 for line in lines(own, "scm_fds", lookout, strict=True)):
            return True
        if kind == "pipes":
            pages = USUAL_PIPE // os.sysconf("SC_PAGE_SIZE")
            return PART * pages * len(_pipes(own, lookout)) > _limit("/proc/sys/fs/pipe-user-pages-soft", LEAST_PIPES)
        many = _polled(own, lookout)
        return PART * many > _limit("/proc/sys/fs/epoll/max_user_watches", LEAST_POLLED)
    except PermissionError:
        return True
    except CantSee:
        return False


def _pipes(pids: Iterable[int], lookout: Lookout | None = None) -> set[bytes]:
    """The pipes that one of these has open."""
    return set(lines(pids, "pipe", lookout, strict=True))


def _polled(pids: Iterable[int], lookout: Lookout | None = None) -> int:
    """How many descriptors the pollers of these watch."""
    return sum(map(int, lines(pids, "tfd", lookout, strict=True)))


def _limit(file: str, least: int) -> int:
    with contextlib.suppress(OSError, ValueError), open(file, encoding="ascii") as told:
        return int(told.read()) or least
    return least
