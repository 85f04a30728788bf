"""What ends the judge's own work from outside: it is nobody's answer, and passes through whatever code runs then."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class OutOfTime(BaseException):
    """The whole attempt's time is over while the judge itself was busy."""


class Stopped(SystemExit):
    """The judge was told to end."""


class TooSlow(BaseException):
    """What runs has had as long as it may take; the attempt goes on."""


INTERRUPTS = (OutOfTime, TooSlow, Stopped, KeyboardInterrupt)
_noted: list[BaseException] = []


def note(interrupt: BaseException) -> BaseException:
    """Whoever raises one in a signal's handler notes it here: a problem's code that catches everything takes it for its
    own failure."""
    _noted.append(interrupt)
    return interrupt


def raise_noted() -> None:
    """After a problem's code: raise what came while it ran, if it kept that to itself."""
    if _noted:
        raise _noted[-1]


def forget() -> None:
    """What was noted has been seen to."""
    _noted.clear()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TooSlow if the block takes longer. The alarm of the whole attempt stays as it was set."""
    left_s, began = signal.getitimer(signal.ITIMER_REAL)[0], time.monotonic()
    if 0 < left_s <= seconds:
        yield
        return
    before = signal.getsignal(signal.SIGALRM)
    raised: list[BaseException] = []

    def back() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left_s:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left_s - (time.monotonic() - began)))

    def ring(number: int, frame: FrameType | None) -> None:
        back()  # first: whoever keeps this to itself and goes on is ended by that one
        raised.append(note(TooSlow()))
        raise raised[-1]

    signal.signal(signal.SIGALRM, ring)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            yield
        finally:
            if not raised:
                back()
    finally:  # also if it rings while the one above is at it
        _noted[:] = [one for one in _noted if one not in raised]
