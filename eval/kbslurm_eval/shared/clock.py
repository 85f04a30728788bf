"""Time and what it comes to: the judge's clock only, medians inside a launch, a t interval over launches.

A launch's calls share one process, one memory layout and one moment, so they aren't independent; launches nearly are.
All arithmetic is on logarithms, because ratios are what a ranking compares.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

UNRESOLVED = "UNRESOLVED"
ONE_LAUNCH = "ONE_LAUNCH"
LEAST_NS = 50.0
AGREE_NS, AGREE_SHARE, AGREE_SPREAD = 2_000.0, 0.03, 3.0  # how far a claimed device time may be from the judge's
RESOLVABLE = 5.0  # standard deviations of a null call that a net time must be long
# two-sided 95 % quantiles of Student's t for 1, 2, 3 … 30 degrees of freedom, and then for 40, 60, 120
_T95 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
_T95_FAR = ((40, 2.0211), (60, 2.0003), (120, 1.9799))


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A positive time with its 95 % interval, which always contains it."""

    value: float
    low: float
    high: float


@dataclass(kw_only=True)
class LaunchTimes:
    """What one launch showed of one case: durations of calls, and of null calls before and after the submission was
    there."""

    calls_ns: list[int] = field(default_factory=list)
    trusted_null_ns: list[int] = field(default_factory=list)
    null_ns: list[int] = field(default_factory=list)
    bare_null_ns: list[int] = field(default_factory=list)
    baseline: LaunchTimes | None = None


@dataclass(frozen=True, kw_only=True)
class Net:
    """One launch's figure for one case: the median call less the null call."""

    median_ns: float
    null_ns: float
    samples_ns: list[float]
    resolved: bool
    baseline_ns: float | None = None
    null_sd_ns: float = 0.0


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
    also decode its input faster than a null call does: a figure below that part is not resolved.
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
    least = max(LEAST_NS, 3 * spread / math.sqrt(len(samples)), decoding)
    base = None if times.baseline is None else net(times.baseline).median_ns
    return Net(
        median_ns=max(median, least),
        null_ns=null,
        samples_ns=samples,
        resolved=median > least,
        baseline_ns=base,
        null_sd_ns=spread,
    )


def agrees(seen_ns: float, claimed_ns: float, null_sd_ns: float) -> bool:
    """Whether a device time that a runner claims is what the judge's clock shows: within 2 µs, 3 %, or three standard
    deviations of a null call, whichever is most."""
    return abs(seen_ns - claimed_ns) <= max(AGREE_NS, AGREE_SHARE * seen_ns, AGREE_SPREAD * null_sd_ns)


def is_resolved(nets: Sequence[Net]) -> bool:
    """Whether a case's time can be told from the cost of a call, in most launches and over all of them.

    The noise is that of the calmest launch: a neighbour's burst makes an interval wide, it doesn't make a kernel short.
    A launch below its own resolution counts with that, which is more than it showed.
    """
    noise = min(n.null_sd_ns for n in nets)
    most = 2 * sum(n.resolved for n in nets) > len(nets)
    return most and statistics.median(n.median_ns for n in nets) > RESOLVABLE * noise


def baseline_of(nets: Sequence[Net]) -> float | None:
    """What the baseline took over all launches; None without one."""
    found = [n.baseline_ns for n in nets if n.baseline_ns is not None]
    return math.exp(statistics.fmean(map(math.log, found))) if found and len(found) == len(nets) else None


def paired(nets: Sequence[Net]) -> list[float]:
    """One figure per launch: the net median, or, with a baseline beside it, its ratio to that one in units of all
    launches'.

    What slows both in one launch (clocks, heat, a neighbour) is not in the ratio.
    """
    base = baseline_of(nets)
    return [n.median_ns if base is None or n.baseline_ns is None else n.median_ns / n.baseline_ns * base for n in nets]


def interval(values: Sequence[float]) -> Estimate:
    """The mean of the logarithms and its t interval; of one value only itself."""
    logs = [math.log(v) for v in values]
    centre = statistics.fmean(logs)
    half = t95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    value = math.exp(centre)
    return Estimate(value=value, low=min(value, math.exp(centre - half)), high=max(value, math.exp(centre + half)))


def combined(per_case: Sequence[Sequence[float]], ranking_by: Literal["last", "mean", "geom"]) -> Estimate:
    """The score over all cases: combined within each launch, then over launches, so that what a launch shares stays
    in it."""
    launches = list(zip(*per_case, strict=True))
    match ranking_by:
        case "last":
            each = [launch[-1] for launch in launches]
        case "mean":
            each = [statistics.fmean(launch) for launch in launches]
        case "geom":
            each = [math.exp(statistics.fmean(map(math.log, launch))) for launch in launches]
    return interval(each)


def budgeted_calls(*, calls: int, max_calls: int, target_s: float, reference_s: float) -> int:
    """Calls per launch and case: as declared, but not more than fit into target_s at the trusted reference's pace;
    at least 5.

    Decided before the submission is seen, and never changed by it.
    """
    fitting = math.floor(target_s / reference_s) if reference_s > 0 else calls
    return max(1, min(calls, max_calls, max(5, fitting)))
