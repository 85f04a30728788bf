"""Staff are told of a submission beside which the baseline is far slower than before it was there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kbslurm_eval.judge.held_up import HELD_UP, HeldUp
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
PLAIN = TAKES.format(seconds=0.001)
# Eight or nine calls come before the submission is there.
HELD_UP_LATER = TAKES.format(seconds="0.001 if calls <= 9 else 0.03")
GROWS_SLOWER = TAKES.format(seconds="0.001 if calls <= 9 else 0.0015")
BUDGET = wire.Budget(launches=4, calls=12)
IN_ONE_GO, ONE_BY_ONE = 300, 6_000  # as many numbers as fit into what is written late, and more


@pytest.mark.parametrize("n", [IN_ONE_GO, ONE_BY_ONE])
@pytest.mark.parametrize(
    ("baseline", "told"),
    [(PLAIN, False), (GROWS_SLOWER, False), (HELD_UP_LATER, True)],
    ids=["as before", "half as long again", "far slower"],
)
@pytest.mark.parametrize("mode", ["benchmark", "leaderboard"])
def test_a_baseline_that_is_held_up_is_told_to_staff(
    tmp_path: Path, mode: wire.Mode, baseline: str, told: bool, n: int
) -> None:
    manifest = ground.manifest(
        PLAIN, mode=mode, budget=BUDGET, config={"baseline": baseline}, benchmarks=[{"n": n, "seed": 7}],
        tests=[{"n": 40, "seed": 1}], hidden=[],
    )  # fmt: skip
    report = ground.judged(tmp_path, manifest).told
    assert report.verdict == "passed", report.reason
    assert report.flags.count(HELD_UP) == int(told), report.flags
    assert ("of 4 launches half of the baseline's calls" in report.host.get("evidence", {}).get(HELD_UP, "")) == told


def _seen(*launches: tuple[list[float], list[float]], own: Sequence[float] = (1.0,) * 10) -> str:
    found = HeldUp()
    for alone, beside in launches:
        found.add(0, *([round(ms * 1e6) for ms in times] for times in (alone, beside, own)))
    return found.evidence()


SLOW: Any = [2.0, 2.0, 2.1, 2.0], [5.0] * 10
AS_EVER: Any = [2.0, 2.0, 2.1, 2.0], [2.0] * 10


def test_it_takes_half_of_the_calls_of_most_launches() -> None:
    assert _seen(SLOW, SLOW, SLOW).startswith("in 3 of 3 launches")
    assert _seen(SLOW, SLOW, AS_EVER, SLOW).startswith("in 3 of 4 launches")
    assert not _seen(SLOW, SLOW), "two launches say little"
    assert not _seen(SLOW, AS_EVER, SLOW), "neither do two of three"
    assert not _seen(SLOW, AS_EVER, SLOW, AS_EVER, SLOW, AS_EVER)
    most: Any = SLOW[0], [5.0] * 6 + [2.0] * 4
    few: Any = SLOW[0], [5.0] * 4 + [2.0] * 6
    assert _seen(most, most, most) and not _seen(few, few, few)
    short: Any = [0.1] * 4, [0.45] * 10
    assert not _seen(short, short, short), "a third of a millisecond is nothing on a busy machine"
    assert not _seen(([], [5.0] * 10), ([2.0], []))


def test_a_busy_machine_isnt_the_submissions_doing() -> None:
    quiet: Any = [1.0] * 6, [3.0] * 10
    busy: Any = [3.0] * 6, [3.0] * 10
    assert not _seen(quiet, busy, busy), "one quiet second is not what is usual"
    assert _seen(quiet, quiet, quiet), "as long as its own calls are as quick as ever"
    assert not _seen(quiet, quiet, quiet, own=[1.0] * 3 + [2.5] * 7), "they were as slow"
    assert _seen(quiet, quiet, quiet, own=[1.0] * 7 + [2.5] * 3), "some of its own are slow on purpose"
