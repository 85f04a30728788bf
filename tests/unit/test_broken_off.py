"""What ending a ranked run that goes badly gains, by simulation with fixed seeds, and the rules that leave nothing.

The simulations are of what the harness hands on: a figure per launch. A kernel that times itself ends its process in a
launch that is slower than a threshold which it knows.
"""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from kbslurm.domain import broken_off, measure
from kbslurm.domain.board import Measured
from kbslurm.domain.broken_off import Again, Past, Repeated
from kbslurm.domain.run import RunId
from kbslurm.domain.verdict import Verdict
from kbslurm_eval.shared import timing
from kbslurm_eval.shared.wire import Isolation, PhaseName, PhaseResult, Report, VerdictName

SPREAD, LAUNCHES, SUBMISSIONS, PEOPLE = 0.01, 5, 40, 150
FIRST = measure.Yardstick(calibrates=False, may_confirm=True, may_repeat=True, b_ref_s=None, previous=None)
LATER = dataclasses.replace(FIRST, may_confirm=False, may_repeat=False)

Run = Callable[[random.Random, "Side", int], Verdict | None]  # None: it broke off; the number of the measurement


@dataclasses.dataclass
class Side:
    """One person, by the service's rules. `last`: of the last measurements whether they broke off, and which repeated
    another submission's first one."""

    stands: Measured | None = None
    last: list[tuple[bool, Repeated | None]] = dataclasses.field(default_factory=list)

    def _note(self, broke_off: bool, repeated: Repeated | None = None) -> None:
        self.last = [*self.last, (broke_off, repeated)][-broken_off.LAST :]

    def submit(self, run: Run, draw: random.Random) -> None:
        verdict = run(draw, self, 1)
        self._note(verdict is None)
        if verdict is None or not measure.settled(verdict, dataclasses.replace(FIRST, previous=self.stands))[1]:
            return
        first = Past(run=RunId(0), **vars(measured(verdict)))
        past: list[Past] = []
        while True:
            one = run(draw, self, 2 + len(past))
            known = Again(
                first=first,
                past=tuple(past),
                broke_off=sum(broke for broke, _ in self.last),
                others=tuple(one for _, one in self.last if one is not None and one.first is not first),
            )
            if one is None:
                self._note(True)
                return
            found = broken_off.counted_after(one, dataclasses.replace(LATER, previous=self.stands), known)
            past.append(Past(run=RunId(1 + len(past)), **vars(measured(one))))
            self._note(False, Repeated(first=first, later=past[-1]))
            if not found.again:
                break
        counts = past[-1] if found.instead is None else [first, *past][found.instead]
        if self.stands is None or counts.score_s < self.stands.score_s:
            self.stands = counts


def measured(verdict: Verdict) -> Measured:
    assert verdict.score_s is not None
    return Measured(score_s=verdict.score_s, low_s=verdict.low_s or 0.0, high_s=verdict.high_s or math.inf)


def passed(score_s: float, low_s: float | None = None, high_s: float | None = None) -> Verdict:
    return Verdict(name="passed", reason="", score_s=score_s, low_s=low_s, high_s=high_s, ranked=True)


def ending(threshold: float, between: float) -> Run:
    """A run that breaks off in a launch above this quantile; 1: never. `between`: what whole runs differ by."""
    limit = statistics.NormalDist().inv_cdf(threshold) * math.hypot(SPREAD, between) if threshold < 1 else math.inf

    def run(draw: random.Random, _side: Side, _nth: int) -> Verdict | None:
        level, launches = draw.gauss(0, between), []
        for _ in range(LAUNCHES):
            took = level + draw.gauss(0, SPREAD)
            if took > limit:
                return None
            launches.append(math.exp(took))
        return passed(*dataclasses.astuple(timing.interval(launches)))

    return run


def flaky(often: float, between: float) -> Run:
    """An honest one that fails at random."""
    usual = ending(1, between)
    return lambda draw, side, nth: None if draw.random() < often else usual(draw, side, nth)


def slow(draw: random.Random, at_s: float) -> Verdict:
    """One that sleeps."""
    return passed(
        *dataclasses.astuple(timing.interval([at_s * math.exp(draw.gauss(0, 0.001)) for _ in range(LAUNCHES)]))
    )


def sleeping(threshold: float, between: float) -> Run:
    """One that is as fast as it can in its first measurement, and sleeps in later ones in launches that go badly."""
    limit = statistics.NormalDist().inv_cdf(threshold) * math.hypot(SPREAD, between)

    def run(draw: random.Random, _side: Side, nth: int) -> Verdict | None:
        level = draw.gauss(0, between)
        launches = [level + draw.gauss(0, SPREAD) for _ in range(LAUNCHES)]
        took = [math.exp(one) if nth == 1 or one <= limit else 1.2 for one in launches]
        return passed(*dataclasses.astuple(timing.interval(took)))

    return run


def sleeping_as_one(threshold: float, between: float) -> Run:
    """The same, of launches that know of one another, which those of the harness don't."""
    usual, limit = ending(1, between), _limit(threshold, between)

    def run(draw: random.Random, side: Side, nth: int) -> Verdict | None:
        found = usual(draw, side, nth)
        assert found is not None and found.score_s is not None
        return slow(draw, 1.2) if nth > 1 and found.score_s > limit else found

    return run


def descending(threshold: float, between: float) -> Run:
    """One whose first measurements are slow, each a bit less than what stands, and whose later ones only are as fast as
    it can if they are lucky."""
    usual, limit = ending(1, between), _limit(threshold, between)

    def run(draw: random.Random, side: Side, nth: int) -> Verdict | None:
        found, stands = usual(draw, side, nth), 3.0 if side.stands is None else side.stands.score_s
        assert found is not None and found.score_s is not None
        if stands < 1.08:
            return found
        return slow(draw, stands * 0.97) if nth == 1 or found.score_s > limit else found

    return run


def _limit(threshold: float, between: float) -> float:
    return math.exp(statistics.NormalDist().inv_cdf(threshold) * math.hypot(SPREAD / math.sqrt(LAUNCHES), between))


def people(run: Run, seed: int, *, many: int = PEOPLE) -> list[float]:
    """The logarithms of what stands after all submissions, by person; infinite: nothing does."""
    draw, found = random.Random(seed), []
    for _ in range(many):
        side = Side()
        for _ in range(SUBMISSIONS):
            side.submit(run, draw)
        found.append(math.inf if side.stands is None else math.log(side.stands.score_s))
    return found


def ahead(ours: list[float], theirs: list[float]) -> float:
    """How often one of ours is ahead of one of theirs, who all have a score: an even half is no gain."""
    return statistics.fmean(statistics.fmean(one < other for other in theirs) for one in ours)


@pytest.fixture(scope="module")
def honest() -> dict[float, list[float]]:
    """What stands for people who submit one kernel again and again, by what whole runs differ by."""
    return {between: people(ending(1, between), 1) for between in (0.0, 0.005)}


@pytest.mark.parametrize("between", [0.0, 0.005])
@pytest.mark.parametrize(
    ("cheat", "threshold", "most"),
    [
        *((ending, threshold, 0.45) for threshold in (0.6, 0.7, 0.8, 0.9)),
        *((sleeping, threshold, 0.45) for threshold in (0.6, 0.8)),
        (descending, 0.7, 0.52),
        (sleeping_as_one, 0.6, 0.65),
        (sleeping_as_one, 0.8, 0.58),
    ],
)
def test_who_ends_or_slows_down_unlucky_runs_gains_no_rank(
    honest: dict[float, list[float]],
    cheat: Callable[[float, float], Run],
    threshold: float,
    most: float,
    between: float,
) -> None:
    theirs = people(cheat(threshold, between), 2)
    assert ahead(theirs, honest[between]) < most, ahead(theirs, honest[between])


def test_without_the_rule_it_would_gain(monkeypatch: pytest.MonkeyPatch, honest: dict[float, list[float]]) -> None:
    monkeypatch.setattr(broken_off, "MOST", 0)
    assert ahead(people(ending(0.8, 0.0), 2), honest[0.0]) > 0.6


@pytest.mark.parametrize("between", [0.0, 0.005])
def test_who_is_honest_and_flaky_loses_little(honest: dict[float, list[float]], between: float) -> None:
    theirs, unit = people(flaky(0.05, between), 3), math.hypot(SPREAD / math.sqrt(LAUNCHES), between)
    assert all(map(math.isfinite, theirs))
    assert ahead(theirs, honest[between]) > 0.42
    assert (statistics.fmean(theirs) - statistics.fmean(honest[between])) / unit < 0.2


def a_report(verdict: VerdictName, *phases: tuple[PhaseName, bool], mode: Any = "leaderboard") -> Report:
    return Report(
        version=1, token="t", attempt=1, nonce="n", mode=mode, problem_digest="d", harness_digest="h", verdict=verdict,
        reason="", score_s=None, interval_s=None, tests=[], benchmarks=[],
        phases=[PhaseResult(name=name, passed=ok, started_at_ns=1, ended_at_ns=2) for name, ok in phases],
        isolation=Isolation(level=2, means="test"), started_at_ns=1, ended_at_ns=2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("report", "broke_off"),
    [
        (a_report("error", ("test", True), ("benchmark", True), ("ranked", False)), True),
        (a_report("wrong", ("test", True), ("benchmark", True), ("ranked", True), ("hidden", False)), True),
        (a_report("timeout", ("test", True), ("benchmark", True)), True),
        (a_report("error", ("test", True), ("benchmark", False)), False),
        (a_report("wrong", ("test", False)), False),
        (a_report("infrastructure", ("test", True), ("benchmark", True), ("ranked", False)), False),
        (a_report("error", ("test", True), ("benchmark", True), mode="profile"), False),
        (a_report("passed", ("test", True), ("benchmark", True), ("ranked", True), ("hidden", True)), False),
    ],
)
def test_what_breaks_off(report: Report, broke_off: bool) -> None:
    assert broken_off.broke_off(report) == broke_off


def past(*scores: float) -> tuple[Past, ...]:
    return tuple(Past(run=RunId(n), score_s=s, low_s=s * 0.99, high_s=s * 1.01) for n, s in enumerate(scores))


FASTER = Past(run=RunId(9), score_s=0.4, low_s=0.39, high_s=0.41)


def test_the_slowest_counts_once_there_are_enough() -> None:
    verdict = passed(0.5, 0.49, 0.51)

    def found(broke_off: int, *scores: float) -> tuple[bool, int | None]:
        told = broken_off.counted_after(verdict, LATER, Again(first=FASTER, past=past(*scores), broke_off=broke_off))
        assert told.verdict == verdict
        return told.again, told.instead

    assert found(0) == (False, None)
    assert found(2, 0.4) == (True, None)
    assert found(2, 0.4, 0.6) == (False, 1)
    assert found(2, 0.4, 0.45) == (False, None)
    assert found(99, *[0.4] * broken_off.MOST) == (False, None)
    unranked = dataclasses.replace(verdict, ranked=False)
    known = Again(first=FASTER, broke_off=5)
    assert broken_off.counted_after(unranked, LATER, known) == broken_off.Counted(verdict=unranked)


def test_what_is_faster_than_its_own_first_beyond_doubt_doesnt_count() -> None:
    first = dataclasses.replace(FASTER, score_s=0.6, low_s=0.59, high_s=0.61)
    assert broken_off.counted_after(passed(0.5, 0.49, 0.51), LATER, Again(first=first)).instead == first.run
    assert broken_off.counted_after(passed(0.6, 0.59, 0.61), LATER, Again(first=first)).instead is None


def test_what_came_out_slower_than_this_first_one_counts_as_broken_off() -> None:
    def other(first_s: float, later_s: float) -> Repeated:
        first, later = (Measured(score_s=s, low_s=s * 0.98, high_s=s * 1.02) for s in (first_s, later_s))
        return Repeated(first=first, later=later)

    assert broken_off.relapses(FASTER, [other(0.4, 0.5)]) == 1
    assert broken_off.relapses(FASTER, [other(0.4, 0.405)]) == 0, "no slower than can be told"
    assert broken_off.relapses(FASTER, [other(0.5, 0.5)]) == 0, "an earlier, slower kernel"
    assert broken_off.relapses(FASTER, [other(0.3, 0.3)]) == 0
    known = Again(first=FASTER, others=(other(0.4, 0.5),))
    assert broken_off.counted_after(passed(0.4, 0.39, 0.41), LATER, known).again


def test_a_score_that_was_taken_back_stands_for_all_that_cant_be_told_from_it() -> None:
    yard = dataclasses.replace(LATER, taken_back=Measured(score_s=0.505, low_s=0.49, high_s=0.52))
    first = dataclasses.replace(FASTER, score_s=0.5, low_s=0.49, high_s=0.51)
    known = Again(first=first, broke_off=1, past=past(0.502))
    found = broken_off.counted_after(passed(0.5, 0.49, 0.51), yard, known)
    assert found.instead is None and found.verdict.score_s == 0.505
    slower = broken_off.counted_after(passed(0.5, 0.49, 0.51), yard, dataclasses.replace(known, past=past(0.51)))
    assert slower.instead == 0


@pytest.mark.parametrize(
    ("broke_off", "of", "beyond"),
    [(1, 1, False), (2, 2, False), (3, 3, True), (2, 20, False), (5, 20, False), (6, 20, True), (0, 20, False)],
)
def test_what_is_more_than_chance(broke_off: int, of: int, beyond: bool) -> None:
    assert broken_off.beyond_chance(broke_off, of) == beyond
    assert not broken_off.beyond_chance(broken_off.FEWEST - 1, broken_off.FEWEST - 1)


def test_what_its_author_is_told() -> None:
    assert broken_off.remarks(broke_off=False, is_second=True, measurements=2, ranked=True) == []
    (line,) = broken_off.remarks(broke_off=True, is_second=False, measurements=1, ranked=False)
    assert "its first measurement" not in line
    (line,) = broken_off.remarks(broke_off=False, is_second=True, measurements=4, ranked=True)
    assert line.startswith("it was measured 4 times")
