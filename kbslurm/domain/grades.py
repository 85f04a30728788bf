"""Grades of a board as a pure function of plain records: from an archive they come out the same as from the service.

Each ranked submission of a person (on a board of teams, of their team) is worth points by the scheme, less what being
late costs; the one that is worth most counts, or on request the latest that passed. Everybody on the roster gets a
grade, those who handed in nothing get zero.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from kbslurm.domain import lateness
from kbslurm.domain.amounts import score, seconds
from kbslurm.domain.lateness import LatePolicy, Penalty

Measure = Literal["time", "speedup", "light", "rank"]
Counts = Literal["best", "last"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """From this value on a submission is worth so many points: seconds, times the baseline's speed, share of the speed
    of light, or rank."""

    value: float
    points: float


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """How points follow from what was measured. `steps` are in order, the best first; `between` them points are
    constant, or go along a `line`. `passed`: what any submission that passed is worth at least."""

    by: Measure
    steps: tuple[Step, ...]
    points: float
    passed: float = 0.0
    between: Literal["steps", "line"] = "steps"
    counts: Counts = "best"
    decimals: int = 2
    baseline_s: float | None = None
    gpu: str | None = None


@dataclass(frozen=True, kw_only=True)
class Student:
    """Somebody on the roster. `side` is who their submissions count for: themselves, or their team."""

    person_id: int
    side: str
    name: str
    full_name: str | None = None
    email: str | None = None
    student_id: str | None = None
    section: str | None = None
    team: str | None = None
    banned: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Handed:
    """A ranked submission on the graded GPU type: who it counts for, and how it went. No score: it didn't pass, or its
    time doesn't count. `late_s`: by how much it came after its author's own deadline."""

    submission: int
    side: str
    person: str
    at: datetime
    verdict: str
    late_s: float = 0.0
    score_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    baseline_s: float | None = None
    light: float | None = None


@dataclass(frozen=True, kw_only=True)
class Grade:
    """Somebody's points, and how they came about: `why` is for them to read. `submission` is the one that counts."""

    student: Student
    points: float
    submission: int | None
    before_penalty: float
    penalty: Penalty
    score_s: float | None
    handed_in: int
    why: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Basis:
    """All that grades depend on beside the scheme."""

    students: tuple[Student, ...]
    handed: tuple[Handed, ...]
    late: LatePolicy = field(default_factory=LatePolicy)


@dataclass(frozen=True, kw_only=True)
class _Worth:
    """What one submission is worth."""

    of: Handed
    before: float
    penalty: Penalty
    points: float
    how: str


def graded(basis: Basis, scheme: Scheme) -> list[Grade]:
    """A grade for each student, in their order."""
    by_side: dict[str, list[Handed]] = {}
    for one in sorted(basis.handed, key=lambda one: (one.at, one.submission)):
        by_side.setdefault(one.side, []).append(one)
    best = _best_in_time(by_side)
    found: dict[str, tuple[_Worth | None, list[Handed]]] = {}
    for side in {student.side for student in basis.students}:
        theirs = by_side.get(side, [])
        rivals = [one for other, one in best.items() if other != side]
        worths = [_worth(one, scheme, basis.late, rivals) for one in theirs if one.score_s is not None]
        found[side] = (_counted(worths, scheme.counts), theirs)
    return [_grade(student, *found[student.side], scheme) for student in basis.students]


def _best_in_time(by_side: Mapping[str, Sequence[Handed]]) -> dict[str, Handed]:
    """Each side's best in the standings, where late submissions never are."""
    found = {}
    for side, theirs in by_side.items():
        scored = [one for one in theirs if one.score_s is not None and one.late_s <= 0]
        if scored:
            found[side] = min(scored, key=lambda one: (_score(one), one.at, one.submission))
    return found


def _counted(worths: Sequence[_Worth], counts: Counts) -> _Worth | None:
    if not worths:
        return None
    if counts == "last":
        return worths[-1]
    # With equal points the one that came first; `max` keeps the first of equals.
    return max(worths, key=lambda one: one.points)


def _worth(one: Handed, scheme: Scheme, late: LatePolicy, rivals: Sequence[Handed]) -> _Worth:
    value, how = _measured(one, scheme, rivals)
    gained = 0.0 if value is None else points_for(value, scheme)
    before = max(scheme.passed, gained)
    if before > gained:
        how += f"; passing alone is worth {_number(scheme.passed)}"
    penalty = lateness.penalty(one.late_s, late)
    points = rounded(max(0.0, before * (1 - penalty.percent / 100)), scheme.decimals)
    return _Worth(of=one, before=before, penalty=penalty, points=points, how=how)


def _measured(one: Handed, scheme: Scheme, rivals: Sequence[Handed]) -> tuple[float | None, str]:
    """The value that the steps are about, and the same in words."""
    score_s = _score(one)
    shown = score(score_s, one.low_s, one.high_s, ranked=True)
    match scheme.by:
        case "time":
            return score_s, shown
        case "speedup":
            base = scheme.baseline_s if scheme.baseline_s is not None else one.baseline_s
            if base is None:
                return None, f"{shown}, and no baseline was measured to compare it with"
            return base / score_s, f"{shown}, {base / score_s:.3g} times as fast as the baseline's {seconds(base)}"
        case "light":
            if one.light is None:
                return None, f"{shown}, and its share of the speed of light isn't known"
            return one.light, f"{shown}, {100 * one.light:.3g} % of the speed of light"
        case "rank":
            place, tied = rank_among(one, rivals)
            words = f"{shown}, rank {place} of {len(rivals) + 1}"
            return float(place), words + (f", tied with {tied} within measurement error" if tied else "")


def rank_among(one: Handed, rivals: Iterable[Handed]) -> tuple[int, int]:
    """Its rank among these, and how many it is tied with. Ahead is whose 95 % interval ends before its own begins,
    where its own is as wide as is usual among them: whose kernel is slow in some launches only, and its interval wide,
    would share the best one's rank. A better time never has a worse rank."""
    others = list(rivals)
    usual = _usual_width([one, *others])
    begins, ends = _score(one) / usual, _high(one)
    ahead = sum(_high(other) < begins for other in others)
    tied = sum(_high(other) >= begins and ends >= _score(other) / usual for other in others)
    return ahead + 1, tied


def _usual_width(them: Sequence[Handed]) -> float:
    """How many times as long as the lower end of its interval a time is, in the middle one of these."""
    widths = sorted(_score(one) / low if (low := _low(one)) > 0 else math.inf for one in them)
    return widths[(len(widths) - 1) // 2]


def points_for(value: float, scheme: Scheme) -> float:
    """The points for this value: better values never get fewer."""
    more_is_better = scheme.by in ("speedup", "light")
    key = [-step.value if more_is_better else step.value for step in scheme.steps]  # ascending: the best first
    here = -value if more_is_better else value
    at = bisect_left(key, here)
    if at == len(key):
        return 0.0
    if at == 0 or scheme.between == "steps" or here == key[at]:
        return scheme.steps[at].points
    better, worse = scheme.steps[at - 1], scheme.steps[at]
    share = (here - key[at - 1]) / (key[at] - key[at - 1])
    # In floating point the line could leave its ends.
    return min(better.points, max(worse.points, better.points + share * (worse.points - better.points)))


def rounded(points: float, decimals: int) -> float:
    """Points as they are written down, halves up, so that equal work isn't rounded to different sides."""
    scale: float = 10**decimals
    return math.floor(points * scale + 0.5 + 1e-9) / scale


def _grade(student: Student, worth: _Worth | None, theirs: Sequence[Handed], scheme: Scheme) -> Grade:
    nothing = Grade(
        student=student,
        points=0.0,
        submission=None,
        before_penalty=0.0,
        penalty=Penalty(late_s=0.0),
        score_s=None,
        handed_in=len(theirs),
        why=(),
    )
    if student.banned:
        return dataclasses.replace(nothing, why=("banned: nothing counts, 0 points",))
    if worth is None:
        return dataclasses.replace(nothing, why=_why_nothing(theirs))
    return dataclasses.replace(
        nothing,
        points=worth.points,
        submission=worth.of.submission,
        before_penalty=worth.before,
        penalty=worth.penalty,
        score_s=worth.of.score_s,
        why=_why(student, worth, len(theirs), scheme),
    )


def _why_nothing(theirs: Sequence[Handed]) -> tuple[str, ...]:
    if not theirs:
        return ("no ranked submission: 0 points",)
    last = theirs[-1]
    said = "its time doesn't count" if last.verdict == "passed" else last.verdict
    return (f"{_many(len(theirs))}, none with a time that counts (the last, #{last.submission}: {said}): 0 points",)


def _why(student: Student, worth: _Worth, handed_in: int, scheme: Scheme) -> tuple[str, ...]:
    one = worth.of
    chosen = "the latest that passed" if scheme.counts == "last" else "the one that is worth most"
    by = f", by {one.person} for team {student.team}" if one.side.startswith("team:") else ""
    lines = [
        f"#{one.submission}{by}: {chosen} of {_many(handed_in)}",
        f"{worth.how}: {_number(worth.before)} of {_number(scheme.points)} points",
    ]
    if one.late_s > 0:
        lines.append(_why_penalty(worth.penalty))
    lines.append(f"grade: {_number(worth.points)}")
    return tuple(lines)


def _why_penalty(penalty: Penalty) -> str:
    late = f"late by {lateness.span_text(penalty.late_s)}"
    if penalty.in_grace:
        return f"{late}, within the grace period: nothing lost"
    used = f", {penalty.slip_days} slip day{'' if penalty.slip_days == 1 else 's'} used" if penalty.slip_days else ""
    lost = f"{_number(penalty.percent)} % of the points lost" if penalty.percent else "nothing lost"
    return f"{late}{used}: {lost}"


def _many(count: int) -> str:
    return f"{count} ranked submission{'' if count == 1 else 's'}"


def _number(value: float) -> str:
    return f"{value:.10g}"


def _score(one: Handed) -> float:
    assert one.score_s is not None
    return one.score_s


def _low(one: Handed) -> float:
    return min(_score(one), _score(one) if one.low_s is None else one.low_s)


def _high(one: Handed) -> float:
    return max(_score(one), _score(one) if one.high_s is None else one.high_s)
