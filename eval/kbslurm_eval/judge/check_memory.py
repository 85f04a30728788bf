"""What a check may allocate: what the run has left when it begins.

Checks in Python run in the judge's own process, and what they allocate can follow from an answer: an index of
300,000,000 makes a usual check of a permutation take 2.3 GB. Where the kernel ended the judge for that there would be
no report, so machine trouble, at will. With a limit the check fails by a MemoryError instead, and the answer is wrong.
So is a check's in C++, whose process would have everybody's runners ended in a final.
"""

from __future__ import annotations

import contextlib
import mmap
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from kbslurm_eval.cage.limits import GOES_FIRST, oom_score, set_oom_score

LOOK_EVERY_S = 0.25
KEPT, LEAST = 64 << 20, 512 << 20  # kept for the judge itself; what any check may allocate, whatever the figures say
_V1, _V2 = ("memory.limit_in_bytes", "memory.usage_in_bytes"), ("memory.max", "memory.current")


class CheckMemory:
    """The limit. Between two looks what the judge itself takes changes both its size and what is left, so that the sum,
    which is the limit, stays."""

    def __init__(self, processes: int = 1) -> None:
        """So many processes check at the same time, each with its part."""
        self._most, self._looked_at, self._processes = 0, float("-inf"), processes

    @contextlib.contextmanager
    def bounded(self) -> Iterator[None]:
        """No more than what is left can be allocated while the block runs."""
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard != resource.RLIM_INFINITY:  # whoever starts the judge has bounded it already
            yield
            return
        if (now := time.monotonic()) - self._looked_at > LOOK_EVERY_S:
            self._most, self._looked_at = _data() + max(LEAST, left() - KEPT) // self._processes, now
        resource.setrlimit(resource.RLIMIT_DATA, (self._most, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

    def look_anew(self) -> None:
        """What the last check took, which was counted as the judge's own, isn't there any more."""
        self._looked_at = float("-inf")


@contextlib.contextmanager
def going_first() -> Iterator[None]:
    """If memory is short while the block runs, the kernel ends this process and no runner that stands beside it. Only
    then: what a submission takes in its calls is to end itself. Where the judge isn't root the kernel lets a process
    that can't be looked at change nothing there."""
    usual = oom_score()
    set_oom_score(GOES_FIRST)
    try:
        yield
    finally:
        set_oom_score(usual)


def _data() -> int:
    return int(Path("/proc/self/statm").read_text().split()[5]) * mmap.PAGESIZE


def left(root: Path = Path("/")) -> int:
    """The memory that this process's control groups, and the machine, still have for it."""
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            found = int(line.split()[1]) << 10
            break
    else:
        found = 1 << 62
    for line in _lines(root / "proc/self/cgroup"):
        _, kinds, place = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("memory" if kinds else "")
        # a container may see the whole tree, or what is below its own group alone
        group = top / place.lstrip("/")
        for one in dict.fromkeys((group, *group.parents)):
            if one == top or top in one.parents:
                found = min(found, _left_in(one, *(_V1 if kinds else _V2)))
    return found


def _left_in(group: Path, limit: str, usage: str) -> int:
    try:
        most = int((group / limit).read_text())
        used = int((group / usage).read_text())
    except (OSError, ValueError):  # none, or "max"
        return 1 << 62
    stat = dict(line.split() for line in _lines(group / "memory.stat"))
    # files that are read again from a disk when they are needed; what lies in shared memory counts as a file, too
    files = stat.get("total_inactive_file") or stat.get("inactive_file") or 0
    return most - used + int(files)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
