"""What /proc says about processes and their threads."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from kbslurm_eval.cage.kernel import is_gvisor

_PAGE = os.sysconf("SC_PAGE_SIZE")
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_THREADS, _BEGAN = 17, 19  # of the words behind the name in /proc/PID/stat
_FOLDERS_LINKS = 2  # of /proc/PID/task, which has one more for each thread
STOPPED = (b"T", b"t", b"Z", b"X")
GONE = (FileNotFoundError, ProcessLookupError)  # what reading /proc raises for a task that is gone
STAT_SIZE, HELD_OPEN = 1024, 12  # more than a line of /proc/PID/stat has; a judge has 1,024 files, and several runners
KNOWN = 100  # processes that are told by a descriptor each


def children_of(pid: int) -> list[int]:
    """Its children now."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        pass
    return found


def descendants_of(pid: int) -> list[int]:
    """Every process below it now."""
    found, waiting = [], [pid]
    while waiting:
        below = children_of(waiting.pop())
        found += below
        waiting += below
    return found


def state_of(pid: int) -> str:
    """The kernel's letter for its state; X if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return chr(file.read().rpartition(b")")[2].split()[0][0])
    except (OSError, IndexError):
        return "X"


def state_and_threads(pid: int) -> tuple[str, int]:
    """The state of its first thread, and how many it has."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return _told_of(file.read())
    return "X", 0


def _told_of(stat: bytes) -> tuple[str, int]:
    words = stat.rpartition(b")")[2].split()
    return (chr(words[0][0]), int(words[_THREADS])) if len(words) > _THREADS else ("X", 0)


def goes_on(state: str, threads: int) -> bool:
    """Whether a process may, that is told of so: its first thread may have ended before the others."""
    return state.encode() not in STOPPED or (state == "Z" and threads > 1)


def has_ended(pid: int) -> bool:
    """Whether none of its threads is left."""
    return state_of(pid) in "ZX" and proc_folder(pid) == f"/proc/{pid}"


def _state_in(stat: bytes) -> bytes:
    """The letter behind the name, which may hold anything; of a task that is gone X."""
    return stat.rpartition(b")")[2][1:2] or b"X"


def send_signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def proc_folder(pid: int) -> str:
    """Where the kernel shows its memory: if its first thread has ended, at a thread that hasn't."""
    if state_of(pid) == "Z":
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                if task != str(pid):
                    return f"/proc/{pid}/task/{task}"
    return f"/proc/{pid}"


def _resident_in(statm: bytes) -> int:
    words = statm.split()
    return int(words[1]) * _PAGE if len(words) > 1 else 0


def ran_ns(pid: int) -> int | None:
    """How long its threads, also those that have ended, have had a core; None if that can't be told."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)  # what clock_getcpuclockid gives
    except OSError:
        return None


def began_at_ns(pid: int) -> int:
    """When it was started, since the machine was, to a tick; now if that can't be told."""
    with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[_BEGAN]) * TICK_NS
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def mapped_bytes(pid: int) -> int:
    """What of its memory are pages of files, those in shared memory among them."""
    with contextlib.suppress(OSError, IndexError, ValueError), open(f"{proc_folder(pid)}/statm", "rb") as file:
        return int(file.read().split()[2]) * _PAGE
    return 0


def resident_bytes(
    pids: list[int], limit: int, of: Callable[[int], int], hidden: Callable[[Sequence[int]], Mapping[int, int]]
) -> int:
    """The memory that these processes hold; where it seems to be over the limit pages that they share count once.
    `hidden`: the share of those that don't show it to this process, as far as it can be had."""
    resident = sum(map(of, pids))
    if resident <= limit or len(pids) < 2:
        return resident
    if is_gvisor():
        return min(resident, _in_use() or resident)
    shared, unseen = 0, list[int]()
    for pid in pids:
        try:
            with open(f"{proc_folder(pid)}/smaps_rollup", "rb") as file:
                shared += sum(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
        except PermissionError:
            unseen.append(pid)
        except (OSError, IndexError, ValueError):
            if not has_ended(pid) and not is_ending(pid):
                return resident  # it can't be told apart: the plain sum counts
    found = hidden(unseen) if unseen else {}
    if any(pid not in found and not has_ended(pid) and not is_ending(pid) for pid in unseen):
        return resident
    return shared + sum(found.values())


def _in_use() -> int:
    """What everybody here holds together, this process aside; 0 if that can't be told. In gVisor, where it is the
    sandbox's: what its processes share is in nobody's own figures there."""
    told: dict[bytes, int] = {}
    with contextlib.suppress(OSError, IndexError, ValueError), open("/proc/meminfo", "rb") as file:
        told = {line.partition(b":")[0]: int(line.split()[1]) * 1024 for line in file}
    own = 0
    with contextlib.suppress(OSError), open("/proc/self/statm", "rb") as file:
        own = _resident_in(file.read())
    return max(0, told.get(b"MemTotal", 0) - told.get(b"MemFree", 0) - own)


def is_ending(pid: int) -> bool:
    """Whether it has no memory any more: what it had open is root's to see by then."""
    with contextlib.suppress(*GONE), open(f"{proc_folder(pid)}/statm", "rb") as file:
        return not any(map(int, file.read().split()))
    return True


def namespace_numbers(pid: int) -> list[int]:
    """A process's number in each of its nested PID namespaces, from ours on; none when that can't be known."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"NSpid:"):
                return list(map(int, line.split()[1:]))
    return []


Threads = tuple[tuple[str, bytes], ...]


def are_stopped(threads: Threads) -> bool:
    return all(state in STOPPED for _, state in threads)


class ProcessPages:
    """What /proc tells of the tasks of one tree, held open: a page takes three times as long to open as to read again.

    A page is its task's, not its number's. It can't be read any more once the task is gone, and the number is then
    looked up anew.
    """

    def __init__(self) -> None:
        self._folders: dict[int, int] = {}
        self._listed: dict[int, list[str]] = {}
        self._held: dict[tuple[int, str], tuple[int, int]] = {}
        self._sizes: dict[int, int] = {}
        self._known: dict[int, int] = {}

    def look(self, pid: int) -> tuple[Threads, list[int]]:
        """Its threads with their states, none of one that is gone, and who its children are: of each thread the state
        first, so that a stopped one's children are all that it has."""
        threads = []
        below: list[int] = []
        for task in self._known_tasks(pid):
            stat, children = self._task(pid, task)
            if not stat:
                self._listed.pop(pid, None)
            threads.append((task, _state_in(stat)))
            below += map(int, children.split())
        return tuple(threads), below

    def children(self, pid: int) -> list[int] | None:
        """Who the children of a process are whose threads neither come nor go meanwhile; None if that can't be told."""
        below: list[int] = []
        for task in self._known_tasks(pid):
            try:
                below += map(int, self._children(pid, task).split())
            except GONE:
                self._listed.pop(pid, None)
                return None
        return below if pid in self._listed else None

    def of_its_first_thread(self, pid: int) -> list[int]:
        """The children that this one has started; those of its other threads aren't asked for."""
        with contextlib.suppress(*GONE):
            return list(map(int, self._children(pid, str(pid)).split()))
        return []

    def stop_if_it_goes_on(self, pid: int) -> bool:
        """Stop it if it is known, and neither stopped nor gone: its number may be another one's by then."""
        fd, both = self._known.get(pid), self._held.get((pid, str(pid)))
        if fd is None and both is None:
            return False
        try:
            if not goes_on(*(state_and_threads(pid) if both is None else _told_of(os.pread(both[0], STAT_SIZE, 0)))):
                return False
            if fd is None:  # a kernel without, or one too many
                return send_signal(pid, signal.SIGSTOP)
            signal.pidfd_send_signal(fd, signal.SIGSTOP)
        except OSError:
            return False
        return True

    def know(self, pids: Collection[int]) -> None:
        """These processes, all of them stopped, will be told by more than their numbers."""
        for pid in [known for known in self._known if known not in pids]:
            os.close(self._known.pop(pid))
        for pid in pids:
            if len(self._known) >= KNOWN:
                return
            if pid not in self._known:
                with contextlib.suppress(OSError):  # or a kernel without
                    self._known[pid] = os.pidfd_open(pid)

    def threads(self, pid: int) -> int:
        """How many threads it had when it was looked at last, as far as that is remembered."""
        return len(self._listed.get(pid, ())) or 1

    def stat(self, pid: int) -> bytes:
        """/proc/PID/task/PID/stat, or nothing."""
        return self._task(pid, str(pid))[0]

    def resident(self, pid: int) -> int:
        """The memory that it holds, in bytes."""
        fd = self._sizes.get(pid)
        if fd is not None:
            with contextlib.suppress(*GONE):
                if found := _resident_in(os.pread(fd, STAT_SIZE, 0)):
                    return found
            os.close(self._sizes.pop(pid))
        with contextlib.suppress(*GONE):
            place = proc_folder(pid)
            fd = os.open(f"{place}/statm", os.O_RDONLY | os.O_CLOEXEC)
            try:
                return _resident_in(os.pread(fd, STAT_SIZE, 0))
            finally:
                if place == f"/proc/{pid}" and len(self._sizes) < HELD_OPEN:
                    self._sizes[pid] = fd
                else:
                    os.close(fd)
        return 0

    def close(self) -> None:
        """Nothing is held any more."""
        both = (fd for pair in self._held.values() for fd in pair)
        for fd in (*self._folders.values(), *self._sizes.values(), *self._known.values(), *both):
            os.close(fd)
        self._known.clear()
        self._folders.clear()
        self._listed.clear()
        self._sizes.clear()
        self._held.clear()

    def _tasks(self, pid: int) -> list[str]:
        fd = self._folders.get(pid)
        if fd is not None:
            with contextlib.suppress(*GONE):
                if found := os.listdir(fd):
                    return found
            os.close(self._folders.pop(pid))
        try:
            if len(self._folders) >= HELD_OPEN:
                return os.listdir(f"/proc/{pid}/task")
            fd = self._folders[pid] = os.open(f"/proc/{pid}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            return os.listdir(fd)
        except GONE:  # and nothing else: a page that can't be had for another reason doesn't make a task a stopped one
            return []

    def _known_tasks(self, pid: int) -> list[str]:
        """Its threads. They are listed anew where there are more or fewer than before: as many and each of them there
        are the same."""
        known, fd = self._listed.get(pid), self._folders.get(pid)
        if known is not None and fd is not None:
            with contextlib.suppress(*GONE):  # gVisor doesn't tell this of one that has ended
                if os.fstat(fd).st_nlink == _FOLDERS_LINKS + len(known):
                    return known
        self._listed.pop(pid, None)
        found = self._tasks(pid)
        if found and pid in self._folders:
            self._listed[pid] = found
        return found

    def _children(self, pid: int, task: str) -> bytes:
        """The numbers of this thread's children; one of GONE if it has ended."""
        both = self._held.get((pid, task))
        if both is not None:
            return _whole(both[1])
        with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
            return file.read()

    def _task(self, pid: int, task: str) -> tuple[bytes, bytes]:
        key = (pid, task)
        both = self._held.get(key)
        if both is not None:
            with contextlib.suppress(*GONE):
                return os.pread(both[0], STAT_SIZE, 0), _whole(both[1])
            for fd in self._held.pop(key):
                os.close(fd)
        with contextlib.suppress(*GONE), contextlib.ExitStack() as opened:
            stat = os.open(f"/proc/{pid}/task/{task}/stat", os.O_RDONLY | os.O_CLOEXEC)
            opened.callback(os.close, stat)
            told = os.pread(stat, STAT_SIZE, 0)
            try:
                below = os.open(f"/proc/{pid}/task/{task}/children", os.O_RDONLY | os.O_CLOEXEC)
            except GONE:  # or a kernel that doesn't tell
                return told, b""
            opened.callback(os.close, below)
            children = _whole(below)
            if len(self._held) < HELD_OPEN:
                self._held[key] = (stat, below)
                opened.pop_all()
            return told, children
        return b"", b""


def _whole(fd: int) -> bytes:
    found = part = os.pread(fd, 4096, 0)
    while part:
        part = os.pread(fd, 4096, len(found))
        found += part
    return found
