"""Keeps the runner's core from falling asleep while the runner is stopped.

Between two calls the runner's core has nothing to do. A core that sleeps takes 20 to 100 µs to wake, now more and now
less, and in a virtual machine its host has lent it to somebody meanwhile, so its caches are cold: kernels of some
hundred microseconds were timed with half as much again, and differently in each launch. So a process of the lowest
class turns on that core from one call to the next, and blocks while the runner is at work. It knows nothing and holds
nothing but the word that says when to turn. Without it, where it can't be had, timing is coarser and nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import subprocess
import sys
import time

from kbslurm_eval.shared.program import eval_folder

TURN_S = 0.02  # so long at most after it was last asked: the judge may be busy with something else for minutes
LOOKS = 512
_sched_getcpu = getattr(ctypes.CDLL(None), "sched_getcpu", None)


class Warmer:
    """The judge's end. Started when it is first needed; nothing here raises."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._failed = not hasattr(os, "eventfd")
        self._at: int | None = None
        self._word, self._bell = memoryview(bytearray(8)).cast("Q"), -1
        self._asked = 0

    def turn(self, core: int | None) -> None:
        """From now on this core is kept awake, until `rest`."""
        if core is None or self._failed:
            return
        try:
            if self._process is None:
                self._start()
                assert self._process is not None
            if core != self._at:
                with contextlib.suppress(OSError):  # a core that was just taken from us: the next one may be ours
                    os.sched_setaffinity(self._process.pid, {core})
                self._at = core
            self._asked += 2
            self._word[0] = self._asked | 1
            os.eventfd_write(self._bell, 1)
        except OSError:
            self.close()

    def rest(self) -> None:
        """The runner is awake: its core is its own."""
        self._word[0] = self._asked & ~1

    def close(self) -> None:
        """It is gone, and isn't started again."""
        from . import supervisor

        self._failed = True
        self.rest()
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.kill()
            with contextlib.suppress(OSError):
                self._process.wait()
            supervisor.disown_process(self._process.pid)
            self._process = None
        if self._bell >= 0:
            os.close(self._bell)
            self._bell = -1

    def _start(self) -> None:
        from . import supervisor

        shared = os.memfd_create("warm", os.MFD_CLOEXEC)
        try:
            os.ftruncate(shared, mmap.PAGESIZE)
            self._word = memoryview(mmap.mmap(shared, mmap.PAGESIZE)).cast("Q")
            self._bell = os.eventfd(0, os.EFD_CLOEXEC)
            told = [str(n) for n in (shared, self._bell, os.getpid())]
            argv = [sys.executable, "-I", "-S", "-B", eval_folder(), "--warm", *told]
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(shared, self._bell),
                start_new_session=True,
                env={"LANG": "C.UTF-8"},
                cwd="/",
            )
        finally:
            os.close(shared)
        supervisor.own_process(self._process.pid)


def here() -> int | None:
    """The core that this thread is on."""
    core = int(_sched_getcpu()) if _sched_getcpu is not None else -1
    return core if core >= 0 else None


def apart(core: int | None) -> None:
    """Leave this core to the runner that was last on it, where there is another."""
    if core is None or core != here():
        return
    with contextlib.suppress(OSError):
        mine = os.sched_getaffinity(0)
        if others := mine - {core}:
            os.sched_setaffinity(0, others)
            os.sched_setaffinity(0, mine)  # whoever runs stays where it is until there is a reason to move


def serve(shared: int, bell: int, judge: int) -> int:
    """The process: turns while the word is odd, waits for the bell otherwise; ends with its judge."""
    from . import guard

    with contextlib.suppress(OSError):
        guard.prctl(guard.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != judge:
        return 0
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    session = None
    with contextlib.suppress(OSError):  # each session is a group of its own there, whose weight is that of any other
        session = os.open("/proc/self/autogroup", os.O_WRONLY | os.O_CLOEXEC)  # once hidden it isn't ours to open
    session = _lightened(session)
    guard.hide_judge()
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
