"""Recount: the service recomputes a report's figures from its raw samples. Pure; part of step 7, `score`.

The harness's judge is trusted, but its statistics needn't be: a report whose figures don't follow from its archived
samples, or that was measured with less than the problem's budget, is rejected as untrustworthy.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import Counter

from kbslurm.domain.problem import Problem
from kbslurm_eval.shared import timing
from kbslurm_eval.shared.wire import PHASES, CallTimes, LaunchSamples, PhaseName, Report, WireError, commitment

FEWEST_CALLS = timing.LEAST_CALLS  # a slow reference never cuts the budget below this; a problem may declare less
FEWEST_LAUNCHES = 2  # nor below this, except where no score comes of it
TIMED: tuple[PhaseName, ...] = ("benchmark", "ranked")


def check(report: Report, problem: Problem, *, source: str, secret_seed: str) -> None:
    """WireError if the report is about another source or seed, or doesn't match its samples."""
    if report.submission_sha256 != hashlib.sha256(source.encode()).hexdigest():
        raise WireError("it is about another submission")
    if report.seed_commitment != commitment(secret_seed):
        raise WireError("it is about another secret seed")
    check_figures(report, problem)


def check_figures(report: Report, problem: Problem) -> None:
    """WireError if the report doesn't match its samples, or these the problem's budget."""
    _check_shape(report.samples)
    for result in report.benchmarks:
        if result.status == "pass" and result.phase in TIMED:
            found = timing.nets(report.samples, result.phase, result.index)
            said = timing.disagreement(result, found, problem.budget.launches)
            if said is not None:
                raise WireError(f"{result.phase} {result.index} {said}")
    if report.verdict == "passed":
        for phase in TIMED:
            if phase in PHASES[report.mode]:
                _check_budget(report, problem, phase)
        _check_score(report, problem)


def archived(report: Report) -> tuple[bytes, str]:
    """The raw samples as stored, and their digest."""
    text = json.dumps([_as_dict(one) for one in report.samples], separators=(",", ":"), sort_keys=True).encode()
    return zlib.compress(text, 6), hashlib.sha256(text).hexdigest()


def launches(problem: Problem, mode: str, phase: PhaseName) -> int:
    """The required number of launches for this phase."""
    most = problem.budget.launches
    return most if phase == "ranked" or mode != "leaderboard" else min(FEWEST_LAUNCHES, most)


def _check_shape(found: list[LaunchSamples]) -> None:
    if twice := [key for key, n in Counter((s.phase, s.index, s.launch, s.rival) for s in found).items() if n > 1]:
        raise WireError(f"launch {twice[0][2]} of {twice[0][0]} {twice[0][1]} appears twice")
    for one in found:
        for times in (one.own, one.baseline):
            if times is None:
                continue
            if not times.calls_ns or not times.trusted_null_ns:
                raise WireError(f"a launch of {one.phase} {one.index} has no samples")
            if any(not 0 <= value < 1 << 62 for rows in vars(times).values() for value in rows):
                raise WireError(f"a launch of {one.phase} {one.index} has an invalid duration")


def _check_budget(report: Report, problem: Problem, phase: PhaseName) -> None:
    """As many launches as declared, all with the same number of calls, each with the baseline or none with it."""
    budget, wanted = problem.budget, launches(problem, report.mode, phase)
    wanted = _with_time_for(report, phase, wanted)
    if phase == "ranked" and budget.precision > 0 and wanted == budget.launches:
        wanted = _extended(report, problem)
    timed = timing.measured_cases(len(problem.benchmarks), phase, problem.ranking_by)
    if sorted(b.index for b in report.benchmarks if b.phase == phase) != list(timed):
        raise WireError(f"the {phase} phase doesn't have the problem's benchmarks, each once")
    for index in timed:
        mine = [s for s in report.samples if (s.phase, s.index, s.rival) == (phase, index, 0)]
        if sorted(s.launch for s in mine) != list(range(wanted)):
            raise WireError(f"{phase} {index} was measured in {len(mine)} launches, not in {wanted}")
        counts = {len(s.own.calls_ns) for s in mine}
        counts |= {len(s.baseline.calls_ns) for s in mine if s.baseline is not None}
        if len(counts) != 1 or not min(FEWEST_CALLS, budget.calls, budget.max_calls) <= counts.pop() <= budget.calls:
            raise WireError(f"{phase} {index} wasn't measured with the budget that the problem declares")
        paired = [s.baseline is not None for s in mine]
        if any(paired) != all(paired) or any(paired) != (problem.baseline is not None) or any(paired) != report.paired:
            raise WireError(f"{phase} {index} disagrees with the problem on whether there is a baseline")


def _with_time_for(report: Report, phase: PhaseName, declared: int) -> int:
    """How many launches there were, where the judge says that its own code is too slow for more; otherwise as many as
    declared."""
    told = report.budget.get(phase)
    if not isinstance(told, dict) or told.get("declared") != declared:
        return declared
    least = 1 if phase == "benchmark" and report.mode == "leaderboard" else min(FEWEST_LAUNCHES, declared)
    had = told.get("launches")
    return had if isinstance(had, int) and least <= had < declared else declared


def _extended(report: Report, problem: Problem) -> int:
    """How many launches the ranked phase has, with those that were added for a narrower interval: not more than the
    planned ones call for, and fewer only as far as time allowed no more."""
    budget = problem.budget
    found = sorted((b for b in report.benchmarks if b.phase == "ranked"), key=lambda b: b.index)
    many = {len(b.launch_medians_ns) for b in found}
    if len(many) != 1 or (had := many.pop()) < budget.launches:
        return budget.launches
    first = [timing.nets(report.samples, "ranked", b.index)[: budget.launches] for b in found]
    scores = timing.launch_scores([timing.paired(nets) for nets in first], problem.ranking_by)
    return min(had, timing.launches_for(budget.precision, scores, budget.most_launches))


def _check_score(report: Report, problem: Problem) -> None:
    wanted: PhaseName = "ranked" if report.mode == "leaderboard" else "benchmark"
    timed = sorted((b for b in report.benchmarks if b.phase == wanted), key=lambda b: b.index)
    if report.score_s is None or report.interval_s is None:
        if timed:
            raise WireError("a timed run must have a score")
        return
    if not timed:
        raise WireError("a score without a benchmark")
    nets = [timing.nets(report.samples, wanted, b.index) for b in timed]
    found = timing.combined(nets, problem.ranking_by, problem.budget.launches)
    said = (report.score_s, *report.interval_s)
    if not all(timing.same(a, b / 1e9) for a, b in zip(said, (found.value, found.low, found.high), strict=True)):
        raise WireError(f"reports a score of {report.score_s!r} s, but its samples give {found.value / 1e9!r}")


def _times_as_dict(times: CallTimes) -> dict[str, object]:
    """Without a leeway where there is none: samples from before it was measured keep their digest."""
    return {name: value for name, value in vars(times).items() if value or name != "leeway_ns"}


def _as_dict(one: LaunchSamples) -> dict[str, object]:
    told = {name: value for name, value in vars(one).items() if value or name != "alone_ns"}
    for name in ("own", "baseline"):
        times = told[name]
        told[name] = _times_as_dict(times) if isinstance(times, CallTimes) else None
    return told
