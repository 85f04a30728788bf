"""From raw durations to figures: what a launch, a case and a score come to. Pure.

A launch's calls share one process, one memory layout and one moment, so they aren't independent; launches nearly are.
All arithmetic is on logarithms, because ratios are what a ranking compares. The harness and the service call the same
functions on the same samples, so a report whose figures don't follow from its samples is known for what it is.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kbslurm_eval.shared.wire import BenchmarkResult, CallTimes, LaunchSamples, PhaseName

UNRESOLVED = "UNRESOLVED"
ONE_LAUNCH = "ONE_LAUNCH"
LEAST_NS = 50.0
# Who hides all that can be hidden is ahead of who hides nothing by no more than their intervals together, whose
# half-widths add as squares.
LEEWAY_SHARE = math.sqrt(0.5)
TRIMMED = 0.1  # of a launch's calls, so many of the slowest aren't in its own mean, but one at least
LOOP_NS = 1_000.0  # what a runner's own loop takes of a null call, which native code in its place could save
# how far a claimed device time may differ from the judge's: a trip on which a kernel is started isn't as long as one
# without, and a device's clocks and caches aren't what they were (up to 0.2 ms and 13 % on an H200)
AGREE_NS, AGREE_SHARE, AGREE_SPREAD, AGREE_TRIP = 2_000.0, 0.15, 3.0, 0.75
RESOLVABLE = 5.0  # a net time must be this many standard deviations of a null call
# two-sided 95 % quantiles of Student's t for 1, 2, 3 … 30 degrees of freedom, and then for 40, 60, 120
_T95 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
_T95_FAR = ((40, 2.0211), (60, 2.0003), (120, 1.9799))
BATCHES = 10
LEAST_CALLS = 3
FAR_OUT = 5.0  # median absolute deviations above the median: outliers are counted, never removed
# From so many launches on, the mean of all calls that is more than so many times what is typical of them counts: on a
# busy machine one or two launches, or half as much again, say nothing.
TAIL_LAUNCHES, TAIL_TIMES = 3, 1.5
# A baseline that takes so many times as long beside a submission as before is slower than a busy machine makes it.
SLOWER_BESIDE = 1.1
RankingBy = Literal["last", "mean", "geom"]


@dataclass(frozen=True)
class Side:
    """How a launch's calls are counted: by their median, moved to one side of what isn't known of it, or by their mean.

    Whoever does the work of several calls in one of them changes no median; in the mean it is all there. The few
    slowest calls, which a busy machine makes as long as it likes, are in it as far as most launches have them.
    """

    sign: float = 0.0
    by_mean: bool = False

    @property
    def other(self) -> Side:
        """The opposite one, for what something is compared with."""
        return Side(-self.sign, self.by_mean)


KNOWN, BY_MEAN = Side(), Side(by_mean=True)
SIDES = (Side(-1.0), KNOWN, Side(1.0), BY_MEAN)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A positive time with its 95 % interval, which always contains it."""

    value: float
    low: float
    high: float


@dataclass(kw_only=True)
class LaunchTimes:
    """What one launch showed of one case: durations of calls, and of null calls before and after the submission was
    there; and for how long, at most, one could work on a call without being seen to. `alone_ns`: calls of the baseline
    before the submission was there."""

    calls_ns: list[int] = field(default_factory=list)
    trusted_null_ns: list[int] = field(default_factory=list)
    null_ns: list[int] = field(default_factory=list)
    bare_null_ns: list[int] = field(default_factory=list)
    leeway_ns: list[int] = field(default_factory=list)
    baseline: LaunchTimes | None = None
    alone_ns: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Net:
    """One launch's figure for one case: the median call less the null call."""

    median_ns: float
    null_ns: float
    samples_ns: list[float]
    resolved: bool
    baseline_ns: float | None = None
    null_sd_ns: float = 0.0
    leeway_ns: float = 0.0  # how much of its work a submission could at most have hidden from the clock
    mean_ns: float | None = None  # of all but the slowest calls; as the median if it isn't told
    tail: float = 1.0  # how many times as much the mean of all is
    baseline_mean_ns: float | None = None
    baseline_tail: float = 1.0
    # before the submission was there
    baseline_alone_ns: float | None = None
    baseline_alone_mean_ns: float | None = None
    baseline_alone_tail: float = 1.0


def t95(degrees: int) -> float:
    """The two-sided 95 % quantile; between the table's rows the smaller number of degrees counts."""
    if degrees < 1:
        raise ValueError("an interval needs two launches")
    if degrees <= len(_T95):
        return _T95[degrees - 1]
    return next((q for row, q in reversed(_T95_FAR) if degrees >= row), _T95[-1])


def net(times: LaunchTimes) -> Net:
    """Calls less the null call. A null measured while the submission was there may only be used where it is the
    smaller one.

    A submission could slow null calls down to look faster; it can't touch those from before it was loaded. It could
    also decode its input faster than a null call does, take the place of the runner's loop, or begin while its input
    is being written: a figure below that part is not resolved, and one above it isn't known better than that.
    """
    quarter = statistics.quantiles(times.trusted_null_ns, n=4, method="inclusive")[0]
    # too large a null would flatter: on a busy machine the lower quarter is nearer to what a null call costs
    null = min(statistics.median(times.trusted_null_ns), 1.25 * quarter)
    if times.null_ns:
        null = min(null, statistics.median(times.null_ns))
    spread = (quarter - min(times.trusted_null_ns)) * 1.4826
    samples = [t - null for t in times.calls_ns]
    median = statistics.median(samples)
    # What a null call spends on making arrays of the link's bytes is taken off too, and a submission may have replaced
    # the runner's way of doing that by a faster one of its own
    decoding = min(times.trusted_null_ns) - min(times.bare_null_ns) if times.bare_null_ns else 0.0
    leeway = statistics.median(times.leeway_ns) + max(0.0, decoding) if times.leeway_ns else 0.0
    least = max(LOOP_NS, 3 * spread / math.sqrt(len(samples)), decoding, leeway)
    base = None if times.baseline is None else net(times.baseline)
    alone = net(replace(times.baseline, calls_ns=times.alone_ns)) if times.baseline and times.alone_ns else None
    mean = max(_trimmed_mean(samples), least)
    return Net(
        median_ns=max(median, least),
        null_ns=null,
        samples_ns=samples,
        resolved=median > least,
        baseline_ns=None if base is None else base.median_ns,
        null_sd_ns=spread,
        leeway_ns=leeway,
        mean_ns=mean,
        tail=max(1.0, statistics.fmean(samples) / mean),
        baseline_mean_ns=None if base is None else base.mean_ns,
        baseline_tail=1.0 if base is None else base.tail,
        baseline_alone_ns=None if alone is None else alone.median_ns,
        baseline_alone_mean_ns=None if alone is None else alone.mean_ns,
        baseline_alone_tail=1.0 if alone is None else alone.tail,
    )


def _trimmed_mean(values: Sequence[float]) -> float:
    rows = sorted(values)
    return statistics.fmean(rows[: max(1, len(rows) - max(1, int(TRIMMED * len(rows))))])


def agrees(seen_ns: float, claimed_ns: float, null_sd_ns: float, trip_ns: float) -> bool:
    """Whether a device time that a runner claims is what the judge's clock shows: within 2 µs, 15 %, three standard
    deviations of a null call, or three quarters of a call's way there and back, whichever is most."""
    room = max(AGREE_NS, AGREE_SHARE * seen_ns, AGREE_SPREAD * null_sd_ns, AGREE_TRIP * trip_ns)
    return abs(seen_ns - claimed_ns) <= room


def is_resolved(nets: Sequence[Net]) -> bool:
    """Whether a case's time can be told from the cost of a call, in most launches and over all of them.

    The noise is that of the calmest launch: a neighbour's burst makes an interval wide, it doesn't make a kernel short.
    A launch below its own resolution counts with that, which is more than it showed.
    """
    noise = min(n.null_sd_ns for n in nets)
    most = 2 * sum(n.resolved for n in nets) > len(nets)
    return most and statistics.median(n.median_ns for n in nets) > RESOLVABLE * noise


def baseline_of(nets: Sequence[Net]) -> float | None:
    """The baseline's time over all launches; None without one."""
    found = [n.baseline_ns for n in nets if n.baseline_ns is not None]
    return math.exp(statistics.fmean(map(math.log, found))) if found and len(found) == len(nets) else None


def paired(nets: Sequence[Net], side: Side = KNOWN) -> list[float]:
    """One figure per launch: the net time, or, with a baseline beside it, its ratio to that one in units of all
    launches'.

    What slows both in one launch (clocks, heat, a neighbour) is not in the ratio.
    """
    base = baseline_of(nets)
    each = _each_at(nets, side)
    return [own if base is None or beside is None else own / beside * base for own, beside in each]


def _each_at(nets: Sequence[Net], side: Side) -> list[tuple[float, float | None]]:
    """Each launch's net time, counted so, and its baseline's. What isn't known of it is never more than it (`net`)."""
    if side.by_mean:
        tail, beside = _usual_tail(nets), _usual_tail(nets, beside=True)
        means = [(n.mean_ns or n.median_ns, n.baseline_mean_ns or n.baseline_ns) for n in nets]
        return [(tail * own, beside * base if base else None) for own, base in means]
    moved = side.sign * LEEWAY_SHARE
    return [(n.median_ns + moved * min(n.leeway_ns, n.median_ns), n.baseline_ns) for n in nets]


def _alone_at(nets: Sequence[Net], side: Side) -> list[float | None]:
    """What the baseline took in each launch before the submission was there, where that is known."""
    if not side.by_mean:
        return [n.baseline_alone_ns for n in nets]
    tail = statistics.fmean(n.baseline_alone_tail for n in nets)  # few calls each: most launches have no long one
    return [tail * n.baseline_alone_mean_ns if n.baseline_alone_mean_ns else None for n in nets]


def _usual_tail(nets: Sequence[Net], *, beside: bool = False) -> float:
    """How many times as much as all but the slowest calls of each launch say all calls of most launches take. `beside`:
    the baseline's.

    A busy machine's longest calls are in some launches; work that is put off is in most, until a few calls in some of
    them and many in others. Those with many have a short tail, and of those with few most calls are short.
    """
    if not nets:
        return 1.0
    tails = [n.baseline_tail if beside else n.tail for n in nets]
    means = [(n.baseline_mean_ns if beside else n.mean_ns) or 0.0 for n in nets]
    known = statistics.median_low(tails)
    if min(means) <= 0:
        return known
    whole = statistics.median_low(mean * tail for mean, tail in zip(means, tails, strict=True))
    return max(known, whole / math.exp(statistics.fmean(map(math.log, means))))


def put_off(cases: Sequence[Sequence[Net]], ranking_by: RankingBy) -> float | None:
    """How many times what is typical of most launches' calls the mean of all is, each in units of the baseline's; None
    without one."""
    told = [(ratios(found, BY_MEAN), ratios(found)) for found in cases]
    means, typical = ([one for one in each if one] for each in zip(*told, strict=True)) if told else ([], [])
    if not cases or not len(cases) == len(means) == len(typical):
        return None
    pairs = zip(scores_at(means, cases, ranking_by, BY_MEAN), launch_scores(typical, ranking_by), strict=True)
    return math.exp(statistics.fmean(math.log(mean / usual) for mean, usual in pairs))


def slower_beside(cases: Sequence[Sequence[Net]], ranking_by: RankingBy) -> list[float]:
    """How many times as long the baseline took beside the submission as before that was there, for each launch's score;
    nothing where it isn't known."""
    return [before / beside for before, beside in zip(*_scores_in_both(cases, ranking_by, KNOWN), strict=True)]


def _scores_in_both(
    cases: Sequence[Sequence[Net]], ranking_by: RankingBy, side: Side, units: Sequence[float] | None = None
) -> tuple[list[float], list[float]]:
    """Each launch's score, in units of what the baseline took before the submission was there, and beside it."""
    scores = []
    for by_itself in (True, False):
        each = [ratios(found, side, by_itself=by_itself) or [] for found in cases]
        rows = [[unit * one for one in row] for row, unit in zip(each, units or [1.0] * len(cases), strict=True)]
        scores.append(scores_at(rows, cases, ranking_by, side, by_itself=by_itself) if all(rows) else [])
    return scores[0], scores[1]


def before_it_came(
    cases: Sequence[Sequence[Net]], ranking_by: RankingBy, units: Sequence[float] | None = None, planned: int = 0
) -> tuple[float, float]:
    """How far up an interval reaches at least in units of the baseline: to the score in units of what that took before
    the submission was there, by what is typical of calls and by their mean; 0 without one.

    Whoever leaves work behind that slows the baseline is the faster beside it, whatever that work is, and in as many
    launches as they like; all of its calls or a few, which would excuse a few long ones of their own.

    To that score's upper end where the baseline was slower beside it, since it isn't known better than that. Not in
    means: what a few calls add differs by as much from launch to launch on any busy machine.
    """
    reach, has_means = [0.0, 0.0], all(nets and all(n.baseline_alone_mean_ns for n in nets) for nets in cases)
    for n, side in enumerate((KNOWN, BY_MEAN) if has_means else (KNOWN,)):
        scores = _scores_in_both(cases, ranking_by, side, units)
        if min(map(len, scores)) >= 2:
            before, beside = (interval(each, planned) for each in scores)
            slower = before.value > SLOWER_BESIDE * beside.value and not side.by_mean
            reach[n] = before.high if slower else before.value
    return reach[0], reach[1]


def interval(values: Sequence[float], planned: int = 0) -> Estimate:
    """The mean of the logarithms and its t interval; of one value only itself.

    `planned`: how many values were decided on beforehand, if more were added because those scattered. The number of all
    then depends on their spread, so the spread of all would make too narrow an interval: that of the planned ones and
    their degrees of freedom count, as in Stein's two-stage procedure, where the others don't show a wider one.
    """
    logs = [math.log(v) for v in values]
    centre = statistics.fmean(logs)
    half = t95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    if 1 < planned < len(logs):
        half = max(half, t95(planned - 1) * statistics.stdev(logs[:planned]) / math.sqrt(len(logs)))
    value = math.exp(centre)
    return Estimate(value=value, low=min(value, math.exp(centre - half)), high=max(value, math.exp(centre + half)))


def combined(cases: Sequence[Sequence[Net]], ranking_by: RankingBy, planned: int = 0) -> Estimate:
    """The score over all cases: combined within each launch, then over launches, so that what a launch shares stays
    in it. `planned` as for an interval."""
    sides = [
        interval(scores_at([paired(nets, side) for nets in cases], cases, ranking_by, side), planned) for side in SIDES
    ]
    return with_leeway(sides, in_the_tail(cases, ranking_by))


def scores_at(
    per_case: Sequence[Sequence[float]],
    cases: Sequence[Sequence[Net]],
    ranking_by: RankingBy,
    side: Side,
    *,
    by_itself: bool = False,
) -> list[float]:
    """Each launch's score over all cases, counted so. `by_itself`: in units of the baseline before the submission."""
    found = launch_scores(per_case, ranking_by)
    beside = 1.0 if by_itself or not side.by_mean else in_turns(cases, beside=True)
    more = in_turns(cases) / beside if side.by_mean else 1.0
    return [more * score for score in found]


def in_turns(cases: Sequence[Sequence[Net]], *, beside: bool = False) -> float:
    """How many times as much all calls of all cases take in most launches as each case's own most launches say: whoever
    puts work off until a few calls of one case in some launches and of another in others. 1 for one case alone.

    `beside`: the same of the baseline.
    """
    tails = [[n.baseline_tail if beside else n.tail for n in nets] for nets in cases]
    known = [_usual_tail(nets, beside=beside) for nets in cases]
    took, said = [], []
    for launch in range(min(map(len, cases))):
        means = [nets[launch].baseline_mean_ns if beside else nets[launch].mean_ns for nets in cases]
        whole_ns = [(mean or 0.0) * len(nets[launch].samples_ns) for mean, nets in zip(means, cases, strict=True)]
        took.append(math.fsum(ns * tail[launch] for ns, tail in zip(whole_ns, tails, strict=True)))
        said.append(math.fsum(ns * tail for ns, tail in zip(whole_ns, known, strict=True)))
    if len(cases) < 2 or not said or min(said) <= 0:
        return 1.0
    by_launch = statistics.median_low(whole / usual for whole, usual in zip(took, said, strict=True))
    return max(1.0, by_launch, statistics.median_low(took) / math.exp(statistics.fmean(map(math.log, said))))


def in_the_tail(cases: Sequence[Sequence[Net]], ranking_by: RankingBy) -> float:
    """How many times what is typical the score is: more than once where work is put off until a few calls, so that the
    interval's end alone doesn't show it. Without a baseline a busy machine can't be told from that."""
    times = put_off(cases, ranking_by) if cases and min(map(len, cases)) >= TAIL_LAUNCHES else None
    return max(1.0, times / TAIL_TIMES) if times is not None else 1.0


def with_leeway(found: Sequence[Estimate], times: float = 1.0, before: tuple[float, float] = (0.0, 0.0)) -> Estimate:
    """Of these, one for each of SIDES, so many times the one of what is known, with an interval that reaches as far as
    those beside it, to what the mean of calls says, and to `before` (`before_it_came`): so many times what is typical,
    and the mean, which has in it what was put off."""
    below, known, above, mean = found
    value = times * known.value
    high = max(above.high, known.high, mean.value, value, times * before[0], before[1])
    return Estimate(value=value, low=min(below.low, known.low, mean.value), high=high)


def launch_scores(per_case: Sequence[Sequence[float]], ranking_by: RankingBy) -> list[float]:
    """Each launch's score over all cases."""
    launches = list(zip(*per_case, strict=True))
    match ranking_by:
        case "last":
            return [launch[-1] for launch in launches]
        case "mean":
            return [statistics.fmean(launch) for launch in launches]
        case "geom":
            return [math.exp(statistics.fmean(map(math.log, launch))) for launch in launches]


def launches_for(precision: float, scores: Sequence[float], most: int) -> int:
    """How many launches give an interval of ± this fraction, by the spread of these first ones (Stein): never fewer
    than these, never more than `most`. Decided once, by their spread alone, so that nobody stops at a lucky moment."""
    if precision <= 0 or len(scores) < 2:
        return len(scores)
    spread = statistics.stdev(map(math.log, scores))
    needed = math.ceil((t95(len(scores) - 1) * spread / math.log1p(precision)) ** 2)
    return max(len(scores), min(needed, most))


def budgeted_calls(
    *, calls: int, max_calls: int, target_s: float, reference_s: float, share_s: float = math.inf, whole_s: float = 0.0
) -> int:
    """Calls per launch and case: as declared, but not more than fit into target_s at the trusted reference's pace, at
    least 5; and not more than fit into share_s if each takes whole_s with its input's making and its answer's check,
    at least 3.

    Decided before the submission is seen, and never changed by it.
    """
    fitting = math.floor(target_s / reference_s) if reference_s > 0 else calls
    wanted = min(calls, max_calls, max(5, fitting))
    if whole_s > 0 and math.isfinite(share_s):
        wanted = min(wanted, max(LEAST_CALLS, math.floor(share_s / whole_s)))
    return max(1, wanted)


def of_launch(phase: PhaseName, index: int, launch: int, times: LaunchTimes, rival: int = 0) -> LaunchSamples:
    """A launch's durations as a report carries them."""
    base = times.baseline
    return LaunchSamples(
        phase=phase,
        index=index,
        launch=launch,
        rival=rival,
        own=_told(times),
        baseline=None if base is None else _told(base),
        alone_ns=list(times.alone_ns),
    )


def nets(samples: Sequence[LaunchSamples], phase: PhaseName, index: int, rival: int = 0) -> list[Net]:
    """Each launch's figure, in order."""
    mine = [s for s in samples if (s.phase, s.index, s.rival) == (phase, index, rival)]
    return [net(_times(s)) for s in sorted(mine, key=lambda s: s.launch)]


def figures(found: Sequence[Net], planned: int = 0) -> dict[str, Any]:
    """Every figure of one case's BenchmarkResult, by name. `planned` as for an interval."""
    medians = paired(found)
    raw = [n.samples_ns for n in found]
    every = [max(value, LEAST_NS) for launch in raw for value in launch]
    estimate = combined([found], "last", planned)
    flags = [] if is_resolved(found) else [UNRESOLVED]
    if len(found) == 1:
        flags.append(ONE_LAUNCH)
    sides = [ratios(found, side) for side in SIDES]
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
        "baseline_ns": baseline_of(found),
        "flags": flags,
        "p05_ns": quantile(every, 0.05),
        "p95_ns": quantile(every, 0.95),
        "sem_ns": batch_means_error(raw),
        "lag1": statistics.fmean(lag1(launch) for launch in raw),
        "outliers": statistics.fmean(far_out(launch) for launch in raw),
        "null_sd_ns": statistics.median(n.null_sd_ns for n in found),
    }
    if all(sides):
        tail = in_the_tail([found], "last")
        before = before_it_came([found], "last", planned=planned)
        ratio = with_leeway([interval(each, planned) for each in sides if each], tail, before)
        told |= {"ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high}
    return told


def ratios(found: Sequence[Net], side: Side = KNOWN, *, by_itself: bool = False) -> list[float] | None:
    """Per launch, the net time in units of the baseline's beside it; None where there is none. `by_itself`: of what the
    baseline took before the submission was there, where that is known."""
    alone = _alone_at(found, side) if by_itself else [None] * len(found)
    pairs = [(own, before, beside) for before, (own, beside) in zip(alone, _each_at(found, side), strict=True)]
    each = [own / (before or beside) for own, before, beside in pairs if beside is not None]
    return each if each and len(each) == len(found) else None


def components(found: Sequence[Net]) -> dict[str, float] | None:
    """How much of the spread is between launches and how much between the calls of one, as standard deviations of
    logarithms, by the method of moments; None of one launch. They say which of the two a larger budget should have."""
    if len(found) < 2 or min(len(n.samples_ns) for n in found) < 2:
        return None
    logs = [[math.log(max(value, LEAST_NS)) for value in n.samples_ns] for n in found]
    within = statistics.fmean(map(statistics.variance, logs))
    calls = statistics.harmonic_mean([len(launch) for launch in logs])
    # a median of n has about π/2 times the variance of a mean of n
    owed = math.pi / 2 * within / calls
    between = statistics.variance(map(math.log, paired(found))) - owed
    return {"between": math.sqrt(max(0.0, between)), "within": math.sqrt(within)}


def in_units(
    cases: Sequence[Sequence[Net]], b_ref_ns: Sequence[float], ranking_by: RankingBy, planned: int = 0
) -> Estimate:
    """The score over cases in units of the reference times: B_ref x exp(mean over launches of log(t / t_baseline)),
    combined within each launch, with the t interval over launches. ValueError without a baseline."""
    sides = []
    for side in SIDES:
        per_case = []
        for found, unit in zip(cases, b_ref_ns, strict=True):
            each = ratios(found, side)
            if each is None or not unit > 0:
                raise ValueError("no baseline was measured beside it")
            per_case.append([ratio * unit for ratio in each])
        sides.append(interval(scores_at(per_case, cases, ranking_by, side), planned))
    before = before_it_came(cases, ranking_by, b_ref_ns, planned)
    return with_leeway(sides, in_the_tail(cases, ranking_by), before)


def measured_cases(cases: int, phase: PhaseName, ranking_by: RankingBy) -> range:
    """The benchmarks that this phase times: where only the last counts, the ranked phase times no other."""
    return range(max(0, cases - 1), cases) if phase == "ranked" and ranking_by == "last" else range(cases)


def that_count(results: Sequence[BenchmarkResult], phase: PhaseName, ranking_by: RankingBy) -> list[BenchmarkResult]:
    """The cases of this phase that enter the score, in order."""
    mine = sorted((b for b in results if b.phase == phase), key=lambda b: b.index)
    return mine[-1:] if ranking_by == "last" else mine


def disagreement(result: BenchmarkResult, found: Sequence[Net], planned: int = 0) -> str | None:
    """The first figure that doesn't follow from the samples, or None."""
    if not found:
        return "has no samples"
    said: Mapping[str, Any] = vars(result)
    for name, value in figures(found, planned).items():
        if not _same(said[name], value):
            return f"says {name} = {said[name]!r}, its samples say {value!r}"
    return None


def same(one: float, other: float) -> bool:
    """Equal, except for rounding in another machine's mathematics library."""
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
    """How similar each call is to the one before it: the autocorrelation at lag one; 0 if nothing varies."""
    if len(values) < 3:
        return 0.0
    centre = statistics.fmean(values)
    whole = math.fsum((v - centre) ** 2 for v in values)
    near = math.fsum((a - centre) * (b - centre) for a, b in itertools.pairwise(values))
    return near / whole if whole > 0 else 0.0


def far_out(values: Sequence[float]) -> float:
    """The fraction of calls that took far longer than the median one."""
    centre = statistics.median(values)
    spread = statistics.median(abs(v - centre) for v in values)
    return sum(v > centre + FAR_OUT * spread for v in values) / len(values) if spread > 0 else 0.0


def _told(times: LaunchTimes) -> CallTimes:
    return CallTimes(
        calls_ns=list(times.calls_ns),
        trusted_null_ns=list(times.trusted_null_ns),
        null_ns=list(times.null_ns),
        bare_null_ns=list(times.bare_null_ns),
        leeway_ns=list(times.leeway_ns),
    )


def _times(samples: LaunchSamples) -> LaunchTimes:
    base = samples.baseline
    theirs = None if base is None else LaunchTimes(**vars(base))
    return LaunchTimes(**vars(samples.own), baseline=theirs, alone_ns=samples.alone_ns)


def _same(said: Any, value: Any) -> bool:
    if isinstance(said, list) and isinstance(value, list):
        return len(said) == len(value) and all(_same(a, b) for a, b in zip(said, value, strict=True))
    if isinstance(said, int | float) and isinstance(value, int | float):
        return same(said, value)
    return bool(said == value)
