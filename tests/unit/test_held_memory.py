"""How often the judge walks the pages of a runner's processes."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import pytest

from kbslurm_eval.cage import held_memory
from kbslurm_eval.judge import launch
from kbslurm_eval.judge.replies import Rejected

MIB = 1 << 20


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time, which a look at shared pages moves by half a second."""
    now = [1]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])

    def walked(pids: list[int], limit: int, of: Any, hidden: Any) -> int:
        now[0] += 500_000_000
        return 900 * MIB

    monkeypatch.setattr(held_memory, "resident_bytes", walked)
    return now


def test_looks_at_shared_pages_take_a_bounded_part_of_the_time(clock: list[int]) -> None:
    held, pids = held_memory.HeldMemory(1024 * MIB), list(range(24))
    for _ in range(100):
        assert held.now(pids, lambda pid: 800 * MIB) == 900 * MIB
        clock[0] += 10_000_000
    assert held.walks == 1, "a second of calls is no reason to look again"
    clock[0] += 5_000_000_000
    held.now(pids, lambda pid: 800 * MIB)
    assert held.walks == 2


def test_growth_over_the_limit_is_looked_at_at_once(clock: list[int]) -> None:
    held, pids = held_memory.HeldMemory(1024 * MIB), list(range(24))
    held.now(pids, lambda pid: 800 * MIB)
    assert held.now(pids, lambda pid: 804 * MIB) == 996 * MIB, "not more than that"
    assert held.walks == 1
    held.now(pids, lambda pid: 900 * MIB)
    assert held.walks == 2


def test_weighing_a_runner_is_the_submissions_time() -> None:
    class Heavy(launch.Launch):
        def __init__(self) -> None:
            self._allowance = launch.Allowance(left_s=10.0, whole_s=10.0)
            self.runner = self  # type: ignore[assignment]

        def overdrawn(self) -> str:
            """Takes its time."""
            time.sleep(0.05)
            return ""

    heavy = Heavy()
    heavy._weigh()
    assert heavy._allowance.left_s < 9.96


class Clock:
    """Time as a judge has it to itself: passing when it sleeps, and a little whenever it is looked at. A busy machine
    makes a nap of 0.1 ms one of 0.5 ms, and what is looked at then isn't what these tests are about."""

    def __init__(self) -> None:
        self._now_ns = 0

    def perf_counter_ns(self) -> int:
        """A microsecond later than when it was asked last."""
        self._now_ns += 1000
        return self._now_ns

    def sleep(self, seconds: float) -> None:
        """No longer than was asked for."""
        self._now_ns += round(seconds * 1e9)


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What the judge waits by."""
    clock = Clock()
    monkeypatch.setattr(launch, "time", clock)
    return clock


class Waits(launch.Launch):
    """A call whose answer takes so long, in a runner whose holdings take so long to look at."""

    def __init__(self, clock: Clock, takes_s: float, ends_s: float = 9.9) -> None:
        self._allowance = launch.Allowance(left_s=10.0, whole_s=10.0)
        self._heartbeat = self._link = self.runner = self  # type: ignore[assignment]
        self._clock, self.takes_s, self._ends_ns = clock, takes_s, round(ends_s * 1e9)
        self._began_ns, self.bell, self.looks = 0, os.open("/dev/zero", os.O_RDONLY), 0

    def beat(self) -> None:
        """Nobody listens."""

    def _waited_ns(self) -> int:
        return self._clock.perf_counter_ns() - self._began_ns

    def ended(self) -> str | None:
        """Not before its time."""
        return "exit code 3" if self._waited_ns() > self._ends_ns else None

    def overdrawn(self) -> str:
        """Takes its time."""
        self.looks += 1
        self._clock.sleep(self.takes_s)
        return ""

    def waits(self, answer_s: float = 0.1) -> float:
        """How long it took until the answer was seen."""
        self.looks, self._began_ns = 0, self._clock.perf_counter_ns()
        self._until(0, lambda _: self._waited_ns() > answer_s * 1e9, self._began_ns, 10.0)
        return self._waited_ns() / 1e9

    def close(self) -> str:
        """Its bell."""
        os.close(self.bell)
        return ""


def test_looks_within_a_call_take_a_bounded_part_of_it(waited: Clock) -> None:
    """Eighty orphans made each look at a baseline ten times as long, and no answer is seen meanwhile."""
    for takes_s, looks in ((0.02, range(1)), (0.0002, range(1, 11))):
        with contextlib.closing(Waits(waited, takes_s)) as runner:
            runner._weigh()
            runner.waits()
            assert runner.looks in looks


def test_looks_within_calls_are_apart_by_what_they_take_there(waited: Clock) -> None:
    """That was told by the look between two calls, when all is stopped and known: with 64 idle threads, each of which
    is looked at where it isn't stopped, each call of 5 ms seemed to take another."""
    looks = []
    with contextlib.closing(Waits(waited, 0.0)) as threads:
        for _ in range(4):
            threads.takes_s = 0.0001
            threads._weigh()
            threads.takes_s = 0.003
            threads.waits(0.02)
            looks.append(threads.looks)
    assert looks == [1, 0, 0, 0]


def test_who_ends_within_a_call_is_seen_to_at_once_however_long_looks_take(waited: Clock) -> None:
    with contextlib.closing(Waits(waited, 0.02, ends_s=0.01)) as ends:
        ends._weigh()
        with pytest.raises(Rejected, match="exit code 3"):
            ends.waits()
        assert ends._waited_ns() < 40e6, "it ended after 10 ms, and a look takes 20"
