"""What the kernel counts for a user on the whole node, in no limit of a process: whoever has all of it has others' runs
fail, as long as both are the same user's."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

from kbslurm_eval.cage.processes import GONE

Kind = Literal["pipes", "pollers"]
_Found = TypeVar("_Found")

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


def hoards(pids: Iterable[int], kind: Kind) -> bool:
    """Whether these stopped processes have more of it than a run needs, or don't let that be seen."""
    own = list(pids)
    try:
        if any(_seen(_sends_descriptors, pid, False) for pid in own):
            return True
        if kind == "pipes":
            pages = USUAL_PIPE // os.sysconf("SC_PAGE_SIZE")
            return PART * pages * len(_pipes(own)) > _limit("/proc/sys/fs/pipe-user-pages-soft", LEAST_PIPES)
        many = sum(_seen(_polled, pid, 0) for pid in own)
        return PART * many > _limit("/proc/sys/fs/epoll/max_user_watches", LEAST_POLLED)
    except PermissionError:
        return True


def _seen(read: Callable[[int], _Found], pid: int, nothing: _Found) -> _Found:
    """What is read of this process; nothing of one that is ending: what it had open is root's to see by then, from one
    moment to the next."""
    try:
        return read(pid)
    except PermissionError:
        if _is_ending(pid):
            return nothing
        raise


def _pipes(pids: Iterable[int]) -> set[str]:
    """The pipes that one of these has open."""
    return set[str]().union(*(_seen(_pipes_of, pid, set[str]()) for pid in pids))


def _pipes_of(pid: int) -> set[str]:
    found = set[str]()
    for fd in _names(pid):
        with contextlib.suppress(*GONE):
            if (told := os.readlink(f"/proc/{pid}/fd/{fd}")).startswith("pipe:"):
                found.add(told)
    return found


def _polled(pid: int) -> int:
    """How many descriptors this one's pollers watch."""
    count = 0
    for fd in _names(pid):
        with contextlib.suppress(*GONE):
            if os.readlink(f"/proc/{pid}/fd/{fd}") == "anon_inode:[eventpoll]":
                count += watched(pid, fd)
    return count


def watched(pid: int, fd: str) -> int:
    """How many descriptors this poller watches."""
    with open(f"/proc/{pid}/fdinfo/{fd}", "rb") as file:
        return file.read().count(b"tfd:")


def _sends_descriptors(pid: int) -> bool:
    """Whether descriptors are on their way through its sockets: they are nobody's while they are."""
    for fd in _names(pid):
        with contextlib.suppress(*GONE):
            if os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:"):
                with open(f"/proc/{pid}/fdinfo/{fd}", "rb") as file:
                    told = dict(line.partition(b":")[::2] for line in file)
                if int(told.get(b"scm_fds", 0)) > 0:
                    return True
    return False


def _names(pid: int) -> list[str]:
    """The descriptors that it has open; PermissionError where it doesn't let them be seen."""
    try:
        return os.listdir(f"/proc/{pid}/fd")
    except GONE:
        return []


def _is_ending(pid: int) -> bool:
    """Whether it has no memory any more."""
    with contextlib.suppress(*GONE), open(f"/proc/{pid}/statm", "rb") as file:
        return not any(map(int, file.read().split()))
    return True


def _limit(file: str, least: int) -> int:
    with contextlib.suppress(OSError, ValueError), open(file, encoding="ascii") as told:
        return int(told.read()) or least
    return least
