"""How often the judge walks the pages of a runner's processes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kbslurm_eval.cage import held_memory
from kbslurm_eval.judge import launch

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
