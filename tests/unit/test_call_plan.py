"""How many launches there is time for, and how many cores a job has for a judge beside its submission."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbslurm_eval.judge import machine
from kbslurm_eval.judge.call_plan import Wanted, fitting, most_calls
from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground


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


def times_of(calls: int) -> wire.CallTimes:
    return wire.CallTimes(
        calls_ns=[999_999_999] * calls, trusted_null_ns=[9_999] * 8, null_ns=[9_999] * (calls // 8),
        bare_null_ns=[9_999] * 8, leeway_ns=[9_999] * 8,
    )  # fmt: skip


@pytest.mark.parametrize("rivals", [0, 2, 10])
def test_a_reports_samples_fit_into_it_also_those_of_a_final(rivals: int) -> None:
    """Ten finalists with ten cases each made one that was refused after all had been measured."""
    told = ground.manifest(
        "x",
        config={"rivals": ["x"] * rivals} if rivals else {},
        benchmarks=[{"n": 1}] * 10,
        budget=wire.Budget(launches=5, calls=1000, max_calls=5000),
    )
    calls = most_calls(told)
    assert calls >= 400
    samples = [
        wire.LaunchSamples(
            phase="ranked", index=case, launch=launch, rival=rival, own=times_of(calls), baseline=times_of(calls)
        )
        for case in range(10)
        for launch in range(5)
        for rival in range(rivals + 1)
    ]
    size = len(wire.dumps(samples[0])) * len(samples)  # type: ignore[arg-type]
    assert size < wire.REPORT_CAP * 0.9, f"{size:,} bytes"
