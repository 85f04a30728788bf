"""A final: the leaders of a board measured head to head on one node in one job, in addition to their scores.

Nothing counts until a host applies it. The job is an ordinary run by the service; its manifest's `config` makes it a
final.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kbslurm.domain.board import LEAST_DIFFERENCE
from kbslurm.domain.problem import Problem
from kbslurm_eval.shared import timing
from kbslurm_eval.shared.wire import Report

FINAL = "final"  # `submission.via` of such a run; it doesn't rank itself


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One rival's result. No score: it dropped out, for the reason in the verdict."""

    rival: int
    verdict: str
    reason: str
    score_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None

    @property
    def failed(self) -> bool:
        """Whether it dropped out through its own doing. Then the slow end of the interval of the score that it had
        counts, or whoever's final goes badly would keep that score by ending its process."""
        return self.score_s is None and self.verdict != "infrastructure"


@dataclass(frozen=True, kw_only=True)
class Gap:
    """How much slower the one behind is than the one ahead, launch by launch, with the 95 % interval."""

    ahead: int
    behind: int
    ratio: float
    low: float
    high: float

    @property
    def separated(self) -> bool:
        """Whether the difference exceeds measurement error."""
        return self.low > 1 and math.log(self.ratio) > LEAST_DIFFERENCE


def staged(problem: Problem, rivals: Sequence[str]) -> Problem:
    """The problem with all rivals, and with time and memory for all of them together."""
    many = len(rivals) + 2
    limits = dataclasses.replace(
        problem.limits,
        ranked_s=problem.limits.ranked_s * many,
        total_s=problem.limits.total_s * many,
        memory_bytes=problem.limits.memory_bytes * many,
    )
    return dataclasses.replace(problem, limits=limits, config={**problem.config, "rivals": list(rivals)})


def outcomes(report: Report, problem: Problem, b_ref_s: Sequence[float] | None) -> list[Outcome]:
    """Each rival's result, computed from the report's samples, in the board's units."""
    told = report.host.get("rivals")
    found = []
    for number, row in enumerate(told if isinstance(told, list) else ()):
        verdict, reason = str(row.get("verdict", "error")), str(row.get("reason", ""))
        scored = _scored(report, problem, 1 + number, b_ref_s) if verdict == "passed" else None
        if scored is None:
            verdict = "infrastructure" if verdict == "passed" else verdict
            found.append(Outcome(rival=number, verdict=verdict, reason=reason))
        else:
            found.append(
                Outcome(
                    rival=number,
                    verdict=verdict,
                    reason=reason,
                    score_s=scored.value,
                    low_s=scored.low,
                    high_s=scored.high,
                )
            )
    return found


def gaps(report: Report, problem: Problem, order: Sequence[int]) -> list[Gap]:
    """Between neighbours in this order, launch by launch, so that effects shared within a launch cancel out."""
    found = []
    for ahead, behind in pairwise(order):
        sides = []
        for side in timing.SIDES:
            each_at = ((ahead, side.other), (behind, side))
            one, other = (_per_launch(report, problem, 1 + rival, at) for rival, at in each_at)
            if len(one) == len(other) > 0:
                sides.append(timing.interval([b / a for a, b in zip(one, other, strict=True)]))
        if len(sides) == len(timing.SIDES):
            each = timing.with_leeway(sides)
            found.append(Gap(ahead=ahead, behind=behind, ratio=each.value, low=each.low, high=each.high))
    return found


def as_detail(report: Report, problem: Problem, b_ref_s: Sequence[float] | None) -> dict[str, Any]:
    """The part stored in the verdict's detail."""
    found = outcomes(report, problem, b_ref_s)
    order = [o.rival for o in sorted(found, key=lambda o: (o.score_s is None, o.score_s or 0.0)) if o.score_s]
    told = [{**dataclasses.asdict(gap), "separated": gap.separated} for gap in gaps(report, problem, order)]
    return {"rivals": [dataclasses.asdict(o) for o in found], "gaps": told}


def from_detail(detail: Mapping[str, Any] | None) -> tuple[list[Outcome], list[Gap]]:
    """Read what `as_detail` stored."""
    told = (detail or {}).get("final") or {}
    kept = ("ahead", "behind", "ratio", "low", "high")
    return (
        [Outcome(**row) for row in told.get("rivals", ())],
        [Gap(**{name: row[name] for name in kept}) for row in told.get("gaps", ())],
    )


def _nets(report: Report, problem: Problem, rival: int) -> list[list[timing.Net]] | None:
    timed = timing.measured_cases(len(problem.benchmarks), "ranked", problem.ranking_by)
    cases = [timing.nets(report.samples, "ranked", index, rival) for index in timed]
    had = len({one.launch for one in report.samples if one.phase == "ranked"})
    many = report.budget.get("ranked", {}).get("launches", had)
    complete = bool(cases) and all(0 < len(nets) == many and timing.is_resolved(nets) for nets in cases)
    return cases if complete else None


def _scored(report: Report, problem: Problem, rival: int, b_ref_s: Sequence[float] | None) -> timing.Estimate | None:
    cases = _nets(report, problem, rival)
    if cases is None:
        return None
    if problem.baseline is None:
        found = timing.combined(cases, problem.ranking_by)
        return timing.Estimate(value=found.value / 1e9, low=found.low / 1e9, high=found.high / 1e9)
    return None if b_ref_s is None else timing.in_units(cases, b_ref_s, problem.ranking_by)


def _per_launch(report: Report, problem: Problem, rival: int, side: timing.Side) -> list[float]:
    """One figure per launch, all cases together, as the ranking combines them; at one side of what isn't known."""
    cases = _nets(report, problem, rival)
    if cases is None:
        return []
    per_case = [timing.ratios(nets, side) or timing.paired(nets, side) for nets in cases]
    return timing.scores_at(per_case, cases, problem.ranking_by, side)
