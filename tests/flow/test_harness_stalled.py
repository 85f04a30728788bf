"""What a judge does beside a runner that is awake without work can be held up by whoever writes to the link's files or
takes its core. That is no time for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground

HELD_UP_S = 0.02
# The judge, whose writing to where the answer will be takes so long as soon as a submission is there.
HELD_UP = """
import runpy, sys, time

sys.path.insert(0, EVAL)
from kbslurm_eval.judge import launch
from kbslurm_eval.shared import runner_link

came, written = launch.Patience.end, runner_link.JudgeEnd.poison
held_up_s = 0.0


def submission_comes(self):
    global held_up_s
    held_up_s = SECONDS
    came(self)


def poison(self, *told):
    time.sleep(held_up_s)
    written(self, *told)


launch.Patience.end, runner_link.JudgeEnd.poison = submission_comes, poison
runpy.run_path(EVAL, run_name="__main__")
"""
KERNEL = """
def custom_kernel(data):
    return data + 1
"""
# By how long it takes, calls are made several in one go or one by one.
PROBLEM = """
import time
import numpy as np


def generate_input(n, seed):
    return np.random.default_rng(seed).standard_normal(n)


def ref_kernel(data):
    time.sleep(TAKES)
    return data + 1


def check_implementation(data, output):
    return "" if np.array_equal(output, data + 1) else "mismatch found! custom implementation doesn't match reference"
"""


@pytest.mark.parametrize("takes_s", [0.0, 0.06], ids=["several in one go", "one by one"])
def test_whoever_holds_the_judge_up_beside_a_runner_that_is_awake_has_it_in_the_call(
    tmp_path: Path, takes_s: float
) -> None:
    program = tmp_path / "held_up.py"
    program.write_text(HELD_UP.replace("EVAL", repr(str(ground.EVAL))).replace("SECONDS", str(HELD_UP_S)))
    manifest = ground.manifest(
        KERNEL, mode="benchmark", budget=wire.Budget(launches=2, calls=8),
        files={"reference.py": PROBLEM.replace("TAKES", str(takes_s))}, tests=[{"n": 9, "seed": 1}],
        benchmarks=[{"n": 1000, "seed": 7}], hidden=[],
    )  # fmt: skip
    report = ground.judged(tmp_path / "attempt", manifest, program=program).told
    assert report.verdict == "passed", (report.reason, report.log)
    (found,) = report.benchmarks
    assert found.median_ns is not None and found.median_ns > HELD_UP_S * 0.7e9, (found.median_ns, report.log)
