"""What a submission may do before the clock runs: `kb_warm_up`, everybody's way to what patching the runner gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground

TWICE = """
import time
import numpy as np

def generate_input(n, seed):
    return np.random.default_rng(seed).random(n), [np.arange(n)]

def ref_kernel(data):
    time.sleep(PACE_S)
    return data[0] * 2

def check_implementation(data, output):
    return bool((output == data[0] * 2).all()), "not twice as much"
"""
# Changes all that it is given, and says in the log what it saw.
WARMED = """
import numpy as np

calls = warmed = 0


def kb_warm_up(data, out):
    global warmed
    warmed += 1
    out[:] = 7
    out.shape = (1, -1)
    data[0][:] = 7
    data[1].clear()


def custom_kernel(data, out):
    global calls
    calls += 1
    assert len(data[1]) == 1 and out.ndim == 1, "it was given what the warm-up had changed"
    print(calls, warmed)
    return np.multiply(data[0], 2, out=out)
"""
RAISES = """
def kb_warm_up(data):
    raise ValueError("too cold")


def custom_kernel(data):
    return data[0] * 2
"""


def _judged(folder: Path, source: str, n: int = 50, pace_s: float = 0.002) -> wire.Report:
    files = {"reference.py": TWICE.replace("PACE_S", str(pace_s))}
    told = ground.manifest(
        source, files=files, tests=[], benchmarks=[{"n": n, "seed": 2}], hidden=[], mode="benchmark",
        budget=wire.Budget(launches=1, calls=5),
    )  # fmt: skip
    return ground.judged(folder, told).told


@pytest.mark.parametrize(("n", "warmed"), [(50, 7), (40_000, 0)])
def test_it_is_called_before_each_call_with_small_inputs_and_changes_none_of_them(
    tmp_path: Path, n: int, warmed: int
) -> None:
    report = _judged(tmp_path, WARMED, n)
    assert report.verdict == "passed", report.reason
    assert report.log.splitlines()[-1] == f"7 {warmed}"


def test_it_is_called_between_calls_in_one_go_too(tmp_path: Path) -> None:
    """Whoever patches the runner clears its tables there, outside of the time; so may everybody else."""
    report = _judged(tmp_path, WARMED, pace_s=0.0)
    assert report.verdict == "passed", report.reason
    assert report.host["calls_in_one_go"]["benchmark"]["0"] == 9
    assert report.log.splitlines()[-1] == "8 8"


def test_what_it_raises_is_told(tmp_path: Path) -> None:
    report = _judged(tmp_path, RAISES)
    assert report.verdict == "error"
    assert "kb_warm_up: ValueError: too cold" in report.reason
