"""How ranked times are assessed: reference times, a second measurement, and a check of the node. Pure.

A board whose problem has a baseline ranks in units of reference times (B_ref): what that baseline took there in the
service's own calibration run, once per board, problem version and GPU type, never changed afterwards.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from kbslurm.domain.board import Measured, separated
from kbslurm.domain.problem import Problem
from kbslurm.domain.verdict import Verdict
from kbslurm_eval.shared import timing
from kbslurm_eval.shared.wire import BenchmarkResult, Report

CALIBRATION = "calibration"  # `submission.via` of the service's own runs, which never rank
CHART_LENGTH = 50
CHART_PER_PERSON = 10  # so that no single person's runs can move a node's chart
CHART_FEWEST = 10
CHART_WIDTH = 3.0
LEAST_SPREAD = 0.01  # a smaller spread isn't assumed of any node
AGAIN_AFTER_S = 900.0  # delay before a failed calibration is ordered again
TOO_NEAR = "passed, but the improvement is within measurement error; your previous score stands"
AS_TAKEN_BACK = "passed, but within measurement error of a submission that you deleted; that one's score stands"
UNCALIBRATED = "measured before its board was calibrated, so it isn't ranked; ask a host to rejudge it"


@dataclass(frozen=True, kw_only=True)
class Yardstick:
    """What scoring needs to know about a leaderboard run. `previous` is its author's score so far.

    `may_repeat`: a first measurement, so that a second one can count instead; `may_confirm`: also on a board that wants
    improvements confirmed. `latest_counts`: the board ranks
    the latest submission, not the best. `taken_back`: the author's best deleted score. `chart`: the baseline's recent
    times on that node, as logarithms, newest first.
    """

    calibrates: bool
    may_confirm: bool
    may_repeat: bool
    b_ref_s: tuple[float, ...] | None
    previous: Measured | None
    latest_counts: bool = False
    taken_back: Measured | None = None
    chart: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A board's calibration for one GPU type. `b_ref_s`: the reference times, one per benchmark, once known."""

    gpu: str
    state: Literal["calibrated", "calibrating", "failed"]
    b_ref_s: tuple[float, ...] | None = None
    at: datetime | None = None
    reason: str = ""


def reference_times(report: Report) -> tuple[float, ...]:
    """The baseline's times in this report's ranked phase, in seconds, by benchmark that it timed: a calibration's
    result."""
    timed = sorted((b for b in report.benchmarks if b.phase == "ranked"), key=lambda b: b.index)
    return tuple((b.baseline_ns or math.nan) / 1e9 for b in timed)


def in_reference_units(verdict: Verdict, report: Report, problem: Problem, b_ref_s: Sequence[float] | None) -> Verdict:
    """The verdict with score and interval in units of the reference times. Without those it doesn't rank."""
    if verdict.score_s is None:
        return verdict
    timed = timing.measured_cases(len(problem.benchmarks), "ranked", problem.ranking_by)
    if b_ref_s is None or len(b_ref_s) != len(timed):
        return dataclasses.replace(verdict, ranked=False, reason=UNCALIBRATED if verdict.ranked else verdict.reason)
    nets = [timing.nets(report.samples, "ranked", index) for index in timed]
    found = timing.in_units(nets, b_ref_s, problem.ranking_by, problem.budget.launches)
    return dataclasses.replace(verdict, score_s=found.value, low_s=found.low, high_s=found.high)


def settled(verdict: Verdict, yard: Yardstick, *, disturbed: bool = False) -> tuple[Verdict, bool]:
    """The verdict of a first measurement, and whether it has to be measured again: it would improve its author's rank,
    or it was disturbed and would count.

    Where the best counts, an improvement within measurement error doesn't count: otherwise every resubmission would be
    a lottery ticket. Deleting the earlier submission first doesn't help: its score still stands for one that is equal
    within measurement error.
    """
    verdict, again = _settled(verdict, yard)
    if disturbed and yard.may_repeat and verdict.ranked and verdict.score_s is not None:
        stands = yard.previous
        again = again or stands is None or yard.latest_counts or verdict.score_s < stands.score_s
    gone = yard.taken_back
    if again or gone is None or not verdict.ranked or verdict.score_s is None or verdict.score_s >= gone.score_s:
        return verdict, again
    if separated(_with_interval(verdict, verdict.score_s), gone):
        return verdict, False
    stays = dataclasses.replace(verdict, score_s=gone.score_s, low_s=gone.low_s, high_s=gone.high_s)
    return dataclasses.replace(stays, reason=AS_TAKEN_BACK), False


def _with_interval(verdict: Verdict, score_s: float) -> Measured:
    return Measured(score_s=score_s, low_s=verdict.low_s or score_s, high_s=verdict.high_s or score_s)


def _settled(verdict: Verdict, yard: Yardstick) -> tuple[Verdict, bool]:
    if not yard.may_confirm or not verdict.ranked or verdict.score_s is None:
        return verdict, False
    score_s, stands = verdict.score_s, yard.previous
    if stands is None:
        return verdict, True
    if score_s >= stands.score_s or yard.latest_counts:
        return verdict, score_s < stands.score_s
    if separated(_with_interval(verdict, score_s), stands):
        return verdict, True
    return dataclasses.replace(verdict, ranked=False, reason=TOO_NEAR), False


def shown_best_ns(best_ns: float | None, null_ns: float | None) -> float | None:
    """The shortest sample of a case, or None if more than half of what was measured was the null call that is taken
    off: then it says how far null calls vary, not how fast the kernel is."""
    return best_ns if best_ns is None or null_ns is None or best_ns >= null_ns else None


def is_disturbed(row: BenchmarkResult) -> bool:
    """Whether a sample is mostly null call although a usual one isn't: below the null call, while the median is at
    least twice as long. A kernel that is always short is not disturbed; it ranks if it can be told from a null call."""
    best, median, null = row.best_ns, row.median_ns, row.null_ns
    return null is not None and median is not None and median >= 2 * null and shown_best_ns(best, null) != best


def was_disturbed(report: Report, ranking_by: timing.RankingBy) -> bool:
    """Whether a case that counts was."""
    return any(map(is_disturbed, timing.that_count(report.benchmarks, "ranked", ranking_by)))


def baseline_level(report: Report) -> float | None:
    """The mean logarithm of the baseline's times in the ranked phase; None if it wasn't measured."""
    found = [b.baseline_ns for b in report.benchmarks if b.phase == "ranked" and b.baseline_ns is not None]
    return statistics.fmean(map(math.log, found)) if found else None


def drift(chart: Sequence[float], level: float) -> str | None:
    """What was abnormal about this run's node: its baseline is outside the median ± 3 robust standard deviations of
    earlier ones. None if it is inside, or too few are known."""
    if len(chart) < CHART_FEWEST:
        return None
    centre = statistics.median(chart)
    spread = max(LEAST_SPREAD, 1.4826 * statistics.median(abs(value - centre) for value in chart))
    if abs(level - centre) <= CHART_WIDTH * spread:
        return None
    off, most, least = (math.expm1(by) for by in (level - centre, CHART_WIDTH * spread, -CHART_WIDTH * spread))
    return (
        f"the baseline's time was off by {off:+.1%} there, while {most:+.1%} {least:+.1%}".replace("-", "−")
        + f" was usual in the last {len(chart)} runs"
    )


def as_json(found: Mapping[str, Calibration], *, paired: bool) -> dict[str, object]:
    """The form shown everywhere."""
    return {
        "paired": paired,
        "calibration": {
            gpu: {"state": one.state, "b_ref_s": one.b_ref_s, "at": one.at, "reason": one.reason}
            for gpu, one in found.items()
        },
    }


def reference_score(problem: Problem, found: Calibration | None) -> float | None:
    """What the baseline itself would score on a board that ranks in units of its times; None if it wasn't timed."""
    if found is None or not found.b_ref_s:
        return None
    return timing.launch_scores([[unit] for unit in found.b_ref_s], problem.ranking_by)[0]


def sentence(gpu: str, found: Mapping[str, Calibration], *, paired: bool) -> str:
    """A board's note on its scores on this GPU type; empty if there is none."""
    if not paired:
        return "unpaired: the problem has no baseline, so scores are raw times, and nodes may differ"
    one = found.get(gpu)
    if one is None or one.state == "calibrating":
        return "calibrating: ranked runs wait until the baseline has been timed here"
    if one.state == "failed":
        return f"calibrating: the last attempt failed ({one.reason}) and will be repeated; ranked runs wait"
    return ""
