"""What ends the judge's own work from outside: it is nobody's answer, and passes through whatever code runs then."""

from __future__ import annotations


class OutOfTime(BaseException):
    """The whole attempt's time is over while the judge itself was busy."""


class Stopped(SystemExit):
    """The judge was told to end."""


INTERRUPTS = (OutOfTime, Stopped, KeyboardInterrupt)
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
