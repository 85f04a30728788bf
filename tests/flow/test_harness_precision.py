"""A board that asks for a precision: launches are added until the score's interval is that narrow, or the budget is
used up; and the service counts that again."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import pytest

from kbslurm.domain.problem import Problem
from kbslurm.flow import recount
from kbslurm_eval.shared import timing, wire
from tests.flow import harness_ground as ground

SOURCE = "def custom_kernel(data):\n    return sorted(data)\n"


def ranked(folder: Path, **changed: Any) -> tuple[wire.Report, wire.Manifest]:
    told = ground.manifest(SOURCE, **changed)
    report = ground.judged(folder, told).told
    assert report.verdict == "passed", report.reason
    return report, told


def counted_again(report: wire.Report, told: wire.Manifest, **changed: Any) -> None:
    problem = Problem(
        name="sorting",
        files=told.files,
        tests=tuple(told.tests),
        benchmarks=tuple(told.benchmarks),
        ranking_by="geom",
        budget=dataclasses.replace(told.budget, **changed),
    )
    recount.check(report, problem, source=SOURCE, secret_seed=told.secret_seed)


def test_launches_are_added_for_a_precision_and_counted_again(tmp_path: Path) -> None:
    """No three launches are alike to a hundred-thousandth: as many are made as there may be."""
    budget = wire.Budget(launches=3, calls=3, target_s=60, precision=1e-5, most_launches=5)
    report, told = ranked(tmp_path, budget=budget)
    scored = [b for b in report.benchmarks if b.phase == "ranked"]
    assert [len(b.launch_medians_ns) for b in scored] == [5]
    assert [len(b.launch_medians_ns) for b in report.benchmarks if b.phase == "benchmark"] == [2]
    fact = report.host["precision"]
    assert (fact["asked"], fact["launches"], fact["why"]) == (1e-5, 5, "5 launches are the most")
    assert report.budget["ranked"]["launches"] == 5
    found = timing.combined([timing.nets(report.samples, "ranked", 0)], "geom", 3)
    assert report.interval_s == pytest.approx([found.low / 1e9, found.high / 1e9])
    counted_again(report, told)
    with pytest.raises(wire.WireError, match="in 5 launches, not in 3"):
        counted_again(report, told, precision=0.0)
    with pytest.raises(wire.WireError, match="in 5 launches, not in 4"):
        counted_again(report, told, most_launches=4)


def test_a_precision_that_is_reached_at_once_adds_nothing(tmp_path: Path) -> None:
    report, told = ranked(
        tmp_path, budget=wire.Budget(launches=3, calls=3, target_s=60, precision=1e6, most_launches=9)
    )
    assert report.host["precision"]["launches"] == 3
    assert report.host["precision"]["why"] == ""
    counted_again(report, told)


def test_the_time_limit_ends_it_and_the_report_says_so(tmp_path: Path) -> None:
    """The submission's own time doesn't allow another launch: what there is counts, and nobody times out."""
    slow = SOURCE.replace("    return", "    import time\n    time.sleep(0.2)\n    return")
    assert hashlib.sha256(slow.encode()).hexdigest() != hashlib.sha256(SOURCE.encode()).hexdigest()
    told = ground.manifest(
        slow,
        budget=wire.Budget(launches=3, calls=3, target_s=60, precision=1e-6, most_launches=50),
        limits=ground.limits(ranked_s=12.0),
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    fact = report.host["precision"]
    assert 3 <= fact["launches"] < 50
    assert fact["why"] == "the time limits allow no more launches"


SLOW_CHECK = """
import time


def generate_input(n, seed):
    return [seed % 97] * n


def ref_kernel(data):
    return sorted(data)


def check_implementation(data, output):
    time.sleep(0.9 if len(data) == 50 else 0)
    return output == sorted(data), ""
"""


def test_a_problem_too_slow_for_the_fewest_calls_has_fewer_launches_and_is_counted_again(tmp_path: Path) -> None:
    """Of each launch three calls and two warm-ups, 4.5 s: seven launches don't fit into half of 40 s."""
    budget = wire.Budget(launches=5, calls=10)
    report, told = ranked(
        tmp_path,
        files={"reference.py": SLOW_CHECK},
        benchmarks=[{"n": 50, "seed": 7}],
        limits=ground.limits(total_s=40.0),
        budget=budget,
    )
    assert report.budget["ranked"] == {"launches": 2, "calls": [3], "declared": 5}
    assert report.host["fewer_launches"] == {"declared": 5, "launches": 2}
    counted_again(report, told)
    more = {"ranked": {**report.budget["ranked"], "declared": 4}}
    with pytest.raises(wire.WireError, match="in 2 launches, not in 5"):
        counted_again(dataclasses.replace(report, budget={**report.budget, **more}), told)
    one = [s for s in report.samples if (s.phase, s.launch) != ("ranked", 1)]
    with pytest.raises(wire.WireError):
        counted_again(dataclasses.replace(report, samples=one), told)
