"""Reports as an honest harness would make them of times that a test chose: every figure follows from the samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kbslurm_eval.shared import timing
from kbslurm_eval.shared.wire import PHASES, BenchmarkResult, CallTimes, LaunchSamples, Mode, PhaseName

NULL_NS = 1_000


def launches_of(mode: Mode, phase: PhaseName, launches: int) -> int:
    return launches if phase == "ranked" or mode != "leaderboard" else min(2, launches)


def a_launch(
    phase: PhaseName,
    index: int,
    launch: int,
    net_ns: float,
    *,
    calls: int,
    baseline_ns: float | None = None,
    rival: int = 0,
) -> LaunchSamples:
    """A launch whose net median is this."""

    def times(net: float) -> CallTimes:
        return CallTimes(calls_ns=[round(net) + NULL_NS] * calls, trusted_null_ns=[NULL_NS] * 8)

    base = None if baseline_ns is None else times(baseline_ns)
    return LaunchSamples(phase=phase, index=index, launch=launch, rival=rival, own=times(net_ns), baseline=base)


def timed(
    mode: Mode,
    cases: int,
    *,
    launches: int,
    calls: int,
    score_s: float = 0.5,
    doubt: float = 0.02,
    ranking_by: timing.RankingBy = "geom",
    baseline_s: float | None = None,
    specs: Sequence[str] = (),
) -> dict[str, Any]:
    """The fields of a timed report: every case took `score_s`, with an interval of about `doubt` of it to each side."""
    found: list[LaunchSamples] = []
    results: list[BenchmarkResult] = []
    for phase in (p for p in PHASES[mode] if p in ("benchmark", "ranked")):
        n = launches_of(mode, phase, launches)
        signs = [0.0] * (n % 2) + [(-1.0) ** k for k in range(n - n % 2)]
        step = _step(n, doubt)
        for index in timing.measured_cases(cases, phase, ranking_by):
            for launch, sign in enumerate(signs):
                net_ns = score_s * 1e9 * math.exp(sign * step)
                base_ns = None if baseline_s is None else baseline_s * 1e9
                found.append(a_launch(phase, index, launch, net_ns, calls=calls, baseline_ns=base_ns))
            spec = specs[index] if index < len(specs) else f"case {index}"
            plain = BenchmarkResult(phase=phase, index=index, spec=spec, status="pass")
            nets = timing.nets(found, phase, index)
            results.append(BenchmarkResult(**{**vars(plain), **timing.figures(nets)}))
    last = "ranked" if mode == "leaderboard" else "benchmark"
    by_case = [timing.nets(found, b.phase, b.index) for b in results if b.phase == last]
    told: dict[str, Any] = {"samples": found, "benchmarks": results, "paired": baseline_s is not None}
    if by_case:
        score = timing.combined(by_case, ranking_by)
        told |= {"score_s": score.value / 1e9, "interval_s": [score.low / 1e9, score.high / 1e9]}
    return told


def _step(n: int, doubt: float) -> float:
    """How far launches must lie from the middle, half of them to each side, for the interval to be this wide."""
    if n < 2:
        return 0.0
    return math.log1p(doubt) * math.sqrt(n) / timing.t95(n - 1) * math.sqrt((n - 1) / (n - n % 2))
