"""The judge's children: those that it started itself, and orphans of runners that came to it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from kbslurm_eval.cage.processes import children_of, descendants_of, has_ended, send_signal

LAUNCH_OF_ORPHAN: dict[int, int] = {}  # orphans, and the first process of the launch that they came from
# the first processes of runners without a PID namespace, and processes of the judge's own
OWN_CHILDREN: set[int] = set()
_ADOPTED: set[int] = set()  # those of them that the problem's code has started


def own_process(pid: int) -> None:
    """This child of the judge isn't a runner's orphan: it is neither stopped nor killed as one."""
    OWN_CHILDREN.add(pid)


def disown_process(pid: int) -> None:
    """It is gone, and its pid may be reused by an orphan."""
    OWN_CHILDREN.discard(pid)


def orphans_now() -> list[int]:
    """Children of the judge's that it never started. Those that have ended are let go: each would count as one of the
    processes that its user may have."""
    found = [p for p in children_of(os.getpid()) if p not in OWN_CHILDREN]
    for pid in tuple(found):
        with contextlib.suppress(ChildProcessError):
            if has_ended(pid) and os.waitpid(pid, os.WNOHANG)[0]:
                found.remove(pid)
    for pid in LAUNCH_OF_ORPHAN.keys() - set(found):
        del LAUNCH_OF_ORPHAN[pid]
    return found


@contextlib.contextmanager
def own_processes() -> Iterator[None]:
    """What is started in here is the judge's: the problem's code may have processes of its own, and whatever belongs to
    a runner is stopped meanwhile."""
    before = set(children_of(os.getpid()))
    try:
        yield
    finally:
        there = set(children_of(os.getpid()))
        OWN_CHILDREN.difference_update(_ADOPTED - there)  # a number of one that is gone may be an orphan's next
        _ADOPTED.intersection_update(there)
        _ADOPTED.update(there - before)
        OWN_CHILDREN.update(_ADOPTED)


def orphans_of(launch: int) -> list[int]:
    """Those that came from this launch, by its first process; one of which that isn't known came from whoever ran last,
    and is asked for by it."""
    return [pid for pid in orphans_now() if LAUNCH_OF_ORPHAN.get(pid, launch) == launch]


def end_orphans(launch: int | None = None) -> None:
    """Without a PID namespace orphans of a runner come to the judge (it is their subreaper): end those of this launch,
    or all, here."""
    for _ in range(200):
        left = orphans_now() if launch is None else orphans_of(launch)
        if not left:
            return
        for pid in left:
            for below in [*descendants_of(pid), pid]:
                send_signal(below, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
