"""The process that keeps a stopped runner's core awake: see `core_warmer`."""

from __future__ import annotations

import contextlib
import mmap
import os
import time

from kbslurm_eval.cage import kernel

TURN_S = 0.02  # at most this long after it was last woken: the judge may be busy for minutes
LOOKS = 512


def keep_awake(shared: int, bell: int, judge: int) -> int:
    """The process: spins while the word is odd, otherwise waits for the bell; ends with its judge."""
    with contextlib.suppress(OSError):
        kernel.prctl(kernel.PR_SET_PDEATHSIG, kernel.SIGKILL)
    if os.getppid() != judge:
        return 0
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    session = None
    with contextlib.suppress(OSError):  # each session is a group of its own there, whose weight is that of any other
        session = os.open("/proc/self/autogroup", os.O_WRONLY | os.O_CLOEXEC)  # once hidden, we can't open it
    session = _lightened(session)
    kernel.hide_judge()
    word = memoryview(mmap.mmap(shared, mmap.PAGESIZE)).cast("Q")
    while True:
        os.eventfd_read(bell)
        session = _lightened(session)
        asked, until = word[0], time.monotonic() + TURN_S
        while asked & 1 and time.monotonic() < until:
            for _ in range(LOOKS):
                if word[0] != asked:
                    break
            asked = word[0]


def _lightened(session: int | None) -> int | None:
    """Have our session weigh least. What to try again with at the next bell: of all users but root the kernel hears
    one such word in a tenth of a second."""
    if session is None:
        return None
    try:
        os.write(session, b"19")
    except BlockingIOError:
        return session
    except OSError:
        pass
    os.close(session)
    return None
