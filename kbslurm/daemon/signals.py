"""SIGTERM and ^C as an event that the daemon and the API wait for, and SIGHUP as the wish to read the configuration
anew."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set. For the main thread only; the old handlers are restored."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def reload_on_hangup(stop: threading.Event, reload: Callable[[], None]) -> Iterator[None]:
    """SIGHUP calls `reload`; but where it says that our terminal is gone, it sets `stop`, unless this process was
    started to ignore it, as nohup does. For the main thread only."""
    had_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()

    def hung_up(*_: object) -> None:
        if had_terminal and not _has_terminal():
            stop.set()
        else:
            reload()

    before = signal.signal(signal.SIGHUP, hung_up)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _has_terminal() -> bool:
    """Whether this process has a terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
