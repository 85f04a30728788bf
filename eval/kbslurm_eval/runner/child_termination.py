"""`Process.terminate` and `kill` where no process of a submission may signal another: level 1 on a Linux before 6.12.

There the filter refuses signals, since the kernel wouldn't keep them from others. A child of `multiprocessing` is asked
instead: it waits at a pipe in the launch's own folder, in a thread that does nothing else, and does what the signal
that it reads there would have done; only that nothing which blocks is interrupted for a handler of its own. A pool
couldn't be left otherwise.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
from types import ModuleType
from typing import Any

from kbslurm_eval.runner import named_files

AS_SHELLS_SAY = 128


def listen(process: ModuleType) -> None:
    """Every child of these listens before it does anything else."""
    begin = process.BaseProcess._bootstrap

    def _bootstrap(self: Any, *args: Any, **more: Any) -> Any:
        _thread.start_new_thread(_obey, (_pipe(os.getpid()),))
        return begin(self, *args, **more)

    process.BaseProcess._bootstrap = _bootstrap


def ask(popen_fork: ModuleType) -> None:
    """Signals of these go by a pipe, and whoever ended by one looks as if it had been ended by the signal."""
    own, look = popen_fork.Popen, popen_fork.Popen.poll

    def _send_signal(self: Any, number: int) -> None:
        if self.returncode is None:
            # it holds what was written until the child, which may not have begun, has opened it
            if "asked_at" not in self.__dict__:
                self.asked_at = _pipe(self.pid)
            self.asked = number
            os.write(self.asked_at, bytes([number]))

    def poll(self: Any, flag: int = os.WNOHANG) -> int | None:
        found: int | None = look(self, flag)
        if found is not None and (at := self.__dict__.pop("asked_at", None)) is not None:
            os.close(at)
            if found == AS_SHELLS_SAY + self.asked:
                found = self.returncode = -self.asked
        return found

    own._send_signal, own.poll = _send_signal, poll


def _pipe(pid: int) -> int:
    """The pipe of this process, whoever comes first."""
    path = named_files.path_of("end", str(pid))
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def _obey(at: int) -> None:
    while told := os.read(at, 1):
        number = told[0]
        handler = signal.SIG_DFL if number == signal.SIGKILL else signal.getsignal(number)
        if handler == signal.SIG_DFL:
            os._exit(AS_SHELLS_SAY + number)
        if handler != signal.SIG_IGN:
            _thread.interrupt_main(signal.Signals(number))
