"""How many launches there is time for, and how many cores a job has for a judge beside its submission."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbslurm_eval.judge import machine
from kbslurm_eval.judge.call_plan import Wanted, fitting


def wanted(launches: int, least: int, each_s: float = 1.0) -> Wanted:
    return Wanted(launches=launches, least=least, each_s=each_s)


@pytest.mark.parametrize(
    ("seconds", "found"),
    [
        (7.0, [2, 5]),  # all fit
        (6.9, [2, 4]),
        (4.0, [2, 2]),  # the ranked phase gives up its own first
        (3.9, [1, 2]),
        (0.1, [1, 2]),  # fewer give no interval
    ],
)
def test_launches_are_given_up_until_they_fit(seconds: float, found: list[int]) -> None:
    assert fitting([wanted(2, 1), wanted(5, 2)], seconds) == found


def test_a_problem_with_one_launch_keeps_it() -> None:
    assert fitting([wanted(1, 1), wanted(1, 1)], 0.0) == [1, 1]
    assert fitting([], 0.0) == []


@pytest.mark.parametrize(
    ("told", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, 4),
        ({"cpu.max": "250000 100000\n"}, 2),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu.max": "odd"}, 4),
        ({}, 4),
    ],
)
def test_a_job_has_the_cores_that_it_may_use_at_the_same_time(
    told: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu").mkdir()
    for name, text in told.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert machine.cores() == cores
