"""A baseline that is far slower beside a submission than before that was there makes nobody's rank: the interval of the
ratio reaches as far, and staff are told where it is much."""

from __future__ import annotations

import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbslurm_eval.judge import report as judges_report
from kbslurm_eval.judge.report import HELD_UP
from kbslurm_eval.shared import timing, wire
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
    assert ("reaches up to what it would be in units of the time before" in report.log) >= is_slower
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


def _seen(*launches: tuple[float, float]) -> tuple[list[str], list[str]]:
    """The flags and the author's remarks where the baseline takes so many ms before the submission, and beside it."""
    remarks: list[str] = []
    results = SimpleNamespace(
        flags=[], facts={}, benchmarks=[SimpleNamespace(phase="ranked", index=0)],
        log=SimpleNamespace(remark=lambda _, text: remarks.append(text)),
        samples=[
            timing.of_launch("ranked", 0, n, timing.LaunchTimes(
                calls_ns=[5_000_000] * 9, trusted_null_ns=[1_000] * 8, alone_ns=[round(before * 1e6)] * 6,
                baseline=timing.LaunchTimes(calls_ns=[round(beside * 1e6)] * 9, trusted_null_ns=[1_000] * 8),
            ))
            for n, (before, beside) in enumerate(launches)
        ],
    )  # fmt: skip
    run: Any = SimpleNamespace(manifest=SimpleNamespace(mode="leaderboard", ranking_by="geom"), results=results)
    judges_report._see_what_holds_the_baseline_up(run)
    assert set(results.facts.get("evidence", {})) == set(results.flags)
    return results.flags, remarks


SLOW, AS_EVER = (2.0, 5.0), (2.0, 2.0)


def test_staff_are_told_where_it_is_so_in_all_launches_but_one() -> None:
    assert _seen(SLOW, SLOW, SLOW)[0] == _seen(SLOW, SLOW, AS_EVER, SLOW)[0] == [HELD_UP]
    assert _seen(SLOW, SLOW) == ([], []), "two launches say little"
    assert _seen(SLOW, AS_EVER, SLOW)[0] == [], "neither do two of three"
    assert _seen(SLOW, AS_EVER, SLOW, AS_EVER, SLOW)[0] == []
    assert _seen(*[(2.0, 3.9)] * 4)[0] == [], "less than twice as long"
    assert _seen(*[(0.1, 0.38)] * 4)[0] == [], "a third of a millisecond is nothing on a busy machine"


def test_authors_are_told_from_half_as_long_again() -> None:
    flags, (remark,) = _seen(*[(2.0, 3.2)] * 4)
    assert (flags, "1.60 times as long" in remark) == ([], True)
    assert _seen(*[(2.0, 2.8)] * 4) == ([], [])
