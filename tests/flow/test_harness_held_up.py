"""A baseline that is far slower beside a submission than before that was there makes nobody's rank: the interval of the
ratio reaches as far, and staff are told where it is much."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from kbslurm_eval.judge.report import HELD_UP
from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground

TAKES = """
import time

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    time.sleep({seconds})
    return sorted(data)
"""
PLAIN = TAKES.format(seconds=0.002)
# Seven or eight calls come before the submission is there.
HELD_UP_LATER = TAKES.format(seconds="0.002 if calls <= 8 else 0.03")
# However busy the machine: a judge makes fewer calls alone where they seem to take longer.
ALWAYS_SIX = """
import math, runpy, sys

sys.path.insert(0, EVAL)
from kbslurm_eval.judge import call_plan

call_plan.ALONE, call_plan.CACHES_SHOW_S = ((math.inf, 6),), math.inf
runpy.run_path(EVAL, run_name="__main__")
"""
BUDGET = wire.Budget(launches=4, calls=12)
IN_ONE_GO, ONE_BY_ONE = 300, 6_000  # as many numbers as fit into what is written late, and more


@pytest.mark.parametrize("n", [IN_ONE_GO, ONE_BY_ONE])
@pytest.mark.parametrize(
    ("baseline", "is_slower"), [(PLAIN, False), (HELD_UP_LATER, True)], ids=["as before", "slower"]
)
@pytest.mark.parametrize("mode", ["benchmark", "leaderboard"])
def test_a_baseline_that_is_held_up_makes_no_rank_and_is_told_to_staff(
    tmp_path: Path, mode: wire.Mode, baseline: str, is_slower: bool, n: int
) -> None:
    program = tmp_path / "judge.py"
    program.write_text(ALWAYS_SIX.replace("EVAL", repr(str(ground.EVAL))))
    manifest = ground.manifest(
        PLAIN, mode=mode, budget=BUDGET, config={"baseline": baseline}, benchmarks=[{"n": n, "seed": 7}],
        tests=[{"n": 40, "seed": 1}], hidden=[],
    )  # fmt: skip
    report = ground.judged(tmp_path / "attempt", manifest, program=program).told
    assert report.verdict == "passed", report.reason
    assert [len(one.alone_ns) for one in report.samples] == [6] * len(report.samples)
    assert report.flags.count(HELD_UP) == int(is_slower), report.flags
    assert ("as long beside this submission" in report.host.get("evidence", {}).get(HELD_UP, "")) == is_slower
    assert ("the interval in units of it reaches that much further up" in report.log) >= is_slower
    found = report.benchmarks[-1]
    own, alone = (
        statistics.median(statistics.median(each) for each in rows)
        for rows in zip(*((one.own.calls_ns, one.alone_ns) for one in report.samples), strict=True)
    )
    assert found.ratio is not None and found.ratio_high is not None
    if is_slower:
        assert found.ratio_high > own / alone > 2 * found.ratio


def test_a_run_that_fails_in_its_first_timed_call_has_its_verdict(tmp_path: Path) -> None:
    manifest = ground.manifest(
        PLAIN.replace("return sorted(data)", "return sorted(data) if calls < 3 else []"), mode="benchmark",
        budget=BUDGET, config={"baseline": PLAIN}, benchmarks=[{"n": 40, "seed": 7}, {"n": 50, "seed": 8}],
        tests=[{"n": 40, "seed": 1}], hidden=[],
    )  # fmt: skip
    report = ground.judged(tmp_path, manifest).told
    assert report.verdict == "wrong", report.reason
