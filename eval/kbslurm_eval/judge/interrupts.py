"""What ends the judge's own work from outside: it is nobody's answer, and passes through whatever code runs then."""

from __future__ import annotations


class OutOfTime(BaseException):
    """The whole attempt's time is over while the judge itself was busy."""


class Stopped(SystemExit):
    """The judge was told to end."""


INTERRUPTS = (OutOfTime, Stopped, KeyboardInterrupt)
