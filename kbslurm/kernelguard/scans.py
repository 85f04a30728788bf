"""Scans that the service has made: a few at a time, on threads of their own, and of each text once.

What is found is kept in memory and may be forgotten: whoever asks again has it read again. A key stands for one text
as one release of the scanner reads it.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from kbslurm.errors import KbslurmError
from kbslurm.kernelguard import scanner
from kbslurm.kernelguard.scanner import Opinion

AT_ONCE = 2
PATIENCE_S = 20.0
WAITING_CAP = 200
KEPT = 500
AGAIN_S = 300.0  # what failed, for want of memory, say, may go well another time
STOPPING = "the service is stopping"

Text = Callable[[], str]


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What came of one; without an opinion, why there is none. `at`: by the monotonic clock."""

    opinion: Opinion | None
    why: str = ""
    at: float = 0.0

    @property
    def is_to_repeat(self) -> bool:
        """Whether it failed so long ago that it is tried again."""
        return self.opinion is None and time.monotonic() - self.at > AGAIN_S


class Scans:
    """For one service. Any thread may ask."""

    def __init__(self, *, patience_s: float = PATIENCE_S) -> None:
        self.patience_s = patience_s
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Future[Scan]] = OrderedDict()
        self._waiting: deque[tuple[Future[Scan], Text]] = deque()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._threads = 0
        self._is_over = False

    def known(self, key: str) -> Scan | None:
        """What came of this scan; None if it was never asked for, or isn't over."""
        with self._lock:
            found = self._known.get(key)
        return found.result() if found is not None and found.done() else None

    def ask(self, key: str, text: Text, *, soon: bool = False) -> tuple[Future[Scan] | None, bool]:
        """This scan, and whether it has just been begun: it is unless there is one. None if too many wait. `text` is
        called on another thread, when it is its turn; `soon`: before what waits already."""
        with self._lock:
            found = self._known.get(key)
            if found is not None and not (found.done() and found.result().is_to_repeat):
                self._known.move_to_end(key)
                return found, False
            if len(self._waiting) >= WAITING_CAP or self._is_over:
                return None, False
            found = self._known[key] = Future()
            self._known.move_to_end(key)
            found.set_running_or_notify_cancel()  # whoever waits for it may leave, and others want it
            if soon:
                self._waiting.appendleft((found, text))
            else:
                self._waiting.append((found, text))
            if self._threads < AT_ONCE:
                self._threads += 1
                threading.Thread(target=self._work, name="triage", daemon=True).start()
        return found, True

    def close(self) -> None:
        """End them all: those that run are killed. Safe to repeat."""
        with self._lock:
            self._is_over = True
            left, running = [future for future, _ in self._waiting], list(self._running)
            self._waiting.clear()
        for process in running:
            process.kill()
        for one in left:
            one.set_result(Scan(opinion=None, why=STOPPING))

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                future, text = self._waiting.popleft()
            opinion, why = self._scanned(text)
            future.set_result(Scan(opinion=opinion, why=why, at=time.monotonic()))
            with self._lock:
                while len(self._known) > KEPT and next(iter(self._known.values())).done():
                    self._known.popitem(last=False)

    def _scanned(self, text: Text) -> tuple[Opinion | None, str]:
        process: subprocess.Popen[bytes] | None = None

        def started(begun: subprocess.Popen[bytes]) -> None:
            nonlocal process
            process = begun
            with self._lock:
                self._running.add(begun)
                if self._is_over:
                    begun.kill()

        try:
            return scanner.opinion_of(text(), patience_s=self.patience_s, started=started), ""
        except KbslurmError as error:
            return None, STOPPING if self._is_over else error.message
        except Exception as error:  # noqa: BLE001 - it must not end the thread: others wait
            return None, f"it couldn't be scanned: {type(error).__name__}"
        finally:
            if process is not None:
                with self._lock:
                    self._running.discard(process)
