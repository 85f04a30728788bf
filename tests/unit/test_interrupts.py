"""A limit on what a problem's own code may take, inside that of the whole attempt."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kbslurm_eval.judge import interrupts
from kbslurm_eval.judge.interrupts import OutOfTime, TooSlow, within


def turn(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


@pytest.fixture
def outer() -> Iterator[Any]:
    """The attempt's own alarm."""

    def ring(number: int, frame: Any) -> None:
        raise interrupts.note(OutOfTime())

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    interrupts.forget()


def test_what_takes_longer_is_ended_and_nothing_is_left_of_it() -> None:
    before, left_s = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0]
    with pytest.raises(TooSlow), within(0.05):
        turn(5)
    assert signal.getsignal(signal.SIGALRM) is before
    assert max(0.0, left_s - 1) <= signal.getitimer(signal.ITIMER_REAL)[0] <= left_s, "the tests' own"
    interrupts.raise_noted()


def test_what_is_done_in_time_is_not() -> None:
    left_s = signal.getitimer(signal.ITIMER_REAL)[0]
    with within(0.05):
        pass
    turn(0.1)
    assert max(0.0, left_s - 1) <= signal.getitimer(signal.ITIMER_REAL)[0] <= left_s


def test_the_attempts_own_alarm_goes_on_meanwhile(outer: Any) -> None:
    outer(0.4)
    with pytest.raises(TooSlow), within(0.1):
        turn(5)
    assert 0.2 < signal.getitimer(signal.ITIMER_REAL)[0] < 0.3001
    with within(0.1):
        pass
    with pytest.raises(OutOfTime):
        turn(5)


def test_the_attempts_own_alarm_comes_first_if_it_is_earlier(outer: Any) -> None:
    outer(0.05)
    with pytest.raises(OutOfTime), within(10):
        turn(5)


def test_code_that_keeps_both_to_itself_and_ends_is_still_ended(outer: Any) -> None:
    """As the problem's code may: what is noted is raised behind it."""
    outer(10)

    def keeps() -> None:
        try:
            turn(5)
        except BaseException:
            pass

    def asks() -> None:
        try:
            keeps()
        finally:
            interrupts.raise_noted()

    with pytest.raises(TooSlow), within(0.05):
        asks()
    interrupts.raise_noted()


def test_code_that_keeps_it_to_itself_and_goes_on_is_ended_by_the_attempts_alarm(outer: Any) -> None:
    outer(0.3)
    kept: list[BaseException] = []

    def goes_on() -> None:
        while True:
            try:
                turn(5)
            except TooSlow as error:
                kept.append(error)

    with pytest.raises(OutOfTime), within(0.05):
        goes_on()
    assert len(kept) == 1
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0, "it has rung, and doesn't ring again"
    with pytest.raises(OutOfTime):
        interrupts.raise_noted()
