"""From raw samples to figures: what the harness tells of a timed case, and what the service computes again. Pure.

Both sides call the same functions on the same samples, so a report whose figures don't follow from its samples is
known for what it is.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from kbslurm_eval.shared import clock
from kbslurm_eval.shared.wire import BenchmarkResult, CallTimes, LaunchSamples, PhaseName

BATCHES = 10
FAR_OUT = 5.0  # median absolute deviations above the median: counted, never left out
RankingBy = Literal["last", "mean", "geom"]


def of_launch(phase: PhaseName, index: int, launch: int, times: clock.LaunchTimes, rival: int = 0) -> LaunchSamples:
    """A launch's durations as a report carries them."""
    base = times.baseline
    return LaunchSamples(
        phase=phase,
        index=index,
        launch=launch,
        rival=rival,
        own=_told(times),
        baseline=None if base is None else _told(base),
    )


def nets(samples: Sequence[LaunchSamples], phase: PhaseName, index: int, rival: int = 0) -> list[clock.Net]:
    """What each launch came to, in order."""
    mine = [s for s in samples if (s.phase, s.index, s.rival) == (phase, index, rival)]
    return [clock.net(_times(s)) for s in sorted(mine, key=lambda s: s.launch)]


def figures(found: Sequence[clock.Net]) -> dict[str, Any]:
    """Every figure of one case's BenchmarkResult, by name."""
    medians = clock.paired(found)
    raw = [n.samples_ns for n in found]
    every = [max(value, clock.LEAST_NS) for launch in raw for value in launch]
    estimate = clock.interval(medians)
    flags = [] if clock.is_resolved(found) else [clock.UNRESOLVED]
    if len(found) == 1:
        flags.append(clock.ONE_LAUNCH)
    each = ratios(found)
    told: dict[str, Any] = {
        "calls": len(every),
        "launch_medians_ns": medians,
        "median_ns": estimate.value,
        "mean_ns": statistics.fmean(every),
        "std_ns": statistics.pstdev(every),
        "best_ns": min(every),
        "worst_ns": max(every),
        "null_ns": statistics.median(n.null_ns for n in found),
        "low_ns": estimate.low,
        "high_ns": estimate.high,
        "baseline_ns": clock.baseline_of(found),
        "flags": flags,
        "p05_ns": quantile(every, 0.05),
        "p95_ns": quantile(every, 0.95),
        "sem_ns": batch_means_error(raw),
        "lag1": statistics.fmean(lag1(launch) for launch in raw),
        "outliers": statistics.fmean(far_out(launch) for launch in raw),
        "null_sd_ns": statistics.median(n.null_sd_ns for n in found),
    }
    if each is not None:
        ratio = clock.interval(each)
        told |= {"ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high}
    return told


def ratios(found: Sequence[clock.Net]) -> list[float] | None:
    """Per launch, the net time in units of the baseline's beside it; None where there is none."""
    each = [n.median_ns / n.baseline_ns for n in found if n.baseline_ns is not None]
    return each if each and len(each) == len(found) else None


def components(found: Sequence[clock.Net]) -> dict[str, float] | None:
    """How much of the spread is between launches and how much between the calls of one, as standard deviations of
    logarithms, by the method of moments; None of one launch. They say which of the two a larger budget should have."""
    if len(found) < 2 or min(len(n.samples_ns) for n in found) < 2:
        return None
    logs = [[math.log(max(value, clock.LEAST_NS)) for value in n.samples_ns] for n in found]
    within = statistics.fmean(map(statistics.variance, logs))
    calls = statistics.harmonic_mean([len(launch) for launch in logs])
    # a median of n has about π/2 times the variance of a mean of n
    owed = math.pi / 2 * within / calls
    between = statistics.variance(map(math.log, clock.paired(found))) - owed
    return {"between": math.sqrt(max(0.0, between)), "within": math.sqrt(within)}


def in_units(cases: Sequence[Sequence[clock.Net]], b_ref_ns: Sequence[float], ranking_by: RankingBy) -> clock.Estimate:
    """The score over cases in units of the reference times: B_ref x exp(mean over launches of log(t / t_baseline)),
    combined within each launch, with the t interval over launches. ValueError without a baseline."""
    per_case = []
    for found, unit in zip(cases, b_ref_ns, strict=True):
        each = ratios(found)
        if each is None or not unit > 0:
            raise ValueError("no baseline was measured beside it")
        per_case.append([ratio * unit for ratio in each])
    return clock.combined(per_case, ranking_by)


def that_count(results: Sequence[BenchmarkResult], phase: PhaseName, ranking_by: RankingBy) -> list[BenchmarkResult]:
    """The cases of this phase that enter the score, in order."""
    mine = sorted((b for b in results if b.phase == phase), key=lambda b: b.index)
    return mine[-1:] if ranking_by == "last" else mine


def disagreement(result: BenchmarkResult, found: Sequence[clock.Net]) -> str | None:
    """The first figure that doesn't follow from the samples, or None."""
    if not found:
        return "has no samples"
    said: Mapping[str, Any] = vars(result)
    for name, value in figures(found).items():
        if not _same(said[name], value):
            return f"says {name} = {said[name]!r}, its samples say {value!r}"
    return None


def same(one: float, other: float) -> bool:
    """Equal but for what another machine's mathematics library may round otherwise."""
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


def quantile(values: Sequence[float], share: float) -> float:
    """The share's quantile, between neighbours where it falls there."""
    rows = sorted(values)
    at = share * (len(rows) - 1)
    below = math.floor(at)
    return rows[below] + (rows[min(below + 1, len(rows) - 1)] - rows[below]) * (at - below)


def batch_means_error(launches: Sequence[Sequence[float]]) -> float | None:
    """The standard error of the mean from batches of neighbours, which near calls' likeness doesn't make too small."""
    squares = []
    for launch in launches:
        size = max(1, len(launch) // BATCHES)
        means = [statistics.fmean(launch[at : at + size]) for at in range(0, len(launch) - size + 1, size)]
        if len(means) < 2:
            return None
        squares.append(statistics.variance(means) / len(means))
    return math.sqrt(math.fsum(squares)) / len(squares)


def lag1(values: Sequence[float]) -> float:
    """How like each call is to the one before it: the autocorrelation at lag one; 0 where nothing varies."""
    if len(values) < 3:
        return 0.0
    centre = statistics.fmean(values)
    whole = math.fsum((v - centre) ** 2 for v in values)
    near = math.fsum((a - centre) * (b - centre) for a, b in itertools.pairwise(values))
    return near / whole if whole > 0 else 0.0


def far_out(values: Sequence[float]) -> float:
    """Which share of the calls took far longer than the median one."""
    centre = statistics.median(values)
    spread = statistics.median(abs(v - centre) for v in values)
    return sum(v > centre + FAR_OUT * spread for v in values) / len(values) if spread > 0 else 0.0


def _told(times: clock.LaunchTimes) -> CallTimes:
    return CallTimes(
        calls_ns=list(times.calls_ns),
        trusted_null_ns=list(times.trusted_null_ns),
        null_ns=list(times.null_ns),
        bare_null_ns=list(times.bare_null_ns),
    )


def _times(samples: LaunchSamples) -> clock.LaunchTimes:
    base = samples.baseline
    return clock.LaunchTimes(**vars(samples.own), baseline=None if base is None else clock.LaunchTimes(**vars(base)))


def _same(said: Any, value: Any) -> bool:
    if isinstance(said, list) and isinstance(value, list):
        return len(said) == len(value) and all(_same(a, b) for a, b in zip(said, value, strict=True))
    if isinstance(said, int | float) and isinstance(value, int | float):
        return same(said, value)
    return bool(said == value)
