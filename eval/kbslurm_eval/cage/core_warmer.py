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
import subprocess
import sys
import time

from kbslurm_eval.cage import judge_children
from kbslurm_eval.shared.program import eval_folder

ASKED_AGAIN_S = 0.01  # it turns for twice as long (`warming_process.TURN_S`)

_sched_getcpu = getattr(ctypes.CDLL(None), "sched_getcpu", None)


class CoreWarmer:
    """The judge's half. Started when first needed; nothing here raises."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._failed = not hasattr(os, "eventfd")
        self._at: int | None = None
        self._word, self._bell = memoryview(bytearray(8)).cast("Q"), -1
        self._asked, self._asked_at = 0, 0.0

    def turn(self, core: int | None) -> None:
        """From now on this core is kept awake, until `rest`."""
        if core is None or self._failed or (core == self._at and self._turns_on()):
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
            self._asked_at = time.monotonic()
        except OSError:
            self.close()

    def _turns_on(self) -> bool:
        """Whether it was asked a moment ago, and goes on by itself for longer than a call takes to begin."""
        return bool(self._word[0] & 1) and time.monotonic() - self._asked_at < ASKED_AGAIN_S

    def rest(self) -> None:
        """The runner is awake and needs its core."""
        self._word[0] = self._asked & ~1

    def close(self) -> None:
        """End it; it isn't started again."""
        self._failed = True
        self.rest()
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.kill()
            with contextlib.suppress(OSError):
                self._process.wait()
            judge_children.disown_process(self._process.pid)
            self._process = None
        if self._bell >= 0:
            os.close(self._bell)
            self._bell = -1

    def _start(self) -> None:
        shared = os.memfd_create("warm", os.MFD_CLOEXEC)
        try:
            os.ftruncate(shared, mmap.PAGESIZE)
            self._word = memoryview(mmap.mmap(shared, mmap.PAGESIZE)).cast("Q")
            self._bell = os.eventfd(0, os.EFD_CLOEXEC)
            told = [str(n) for n in (shared, self._bell, os.getpid())]
            argv = [sys.executable, "-I", "-S", "-B", eval_folder(), "--keep-awake", *told]
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
        judge_children.own_process(self._process.pid)


def here() -> int | None:
    """The core that this thread runs on."""
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
            os.sched_setaffinity(0, mine)  # a running process stays on its core until there is a reason to move
