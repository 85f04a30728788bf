"""Who leads: ranking as a pure function of scored runs. The caller gives the entries of one board and one GPU type.

A score is an interval, not a number: two entries can't be separated, whatever their order, where the 95 % interval of
the difference of their logarithms holds zero, or where they differ by no more than 0.5 %. Among the first twenty there
are 190 pairs, of which one in twenty would be told apart by luck alone; there Holm's procedure asks for more, so that
no pair at all is told apart by luck on 19 boards of 20.
The order stays total all the same (score, then who came first), since a page has lines; `tied_with` tells the truth.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations
from typing import Protocol

WIDE = 4.0  # so many times the usual doubt is a doubt of its own kind
CLOSE = 1e-9
LEAST_DIFFERENCE = 0.005  # of the logarithms: nobody's rank hangs on less
TOP = 20  # whose pairs are judged together
ALPHA = 0.05
DEGREES = 4  # of each interval: five launches, as problems have unless they say otherwise
T95 = 2.7764


class Timed(Protocol):
    """A score with its 95 % interval."""

    @property
    def score_s(self) -> float: ...
    @property
    def low_s(self) -> float: ...
    @property
    def high_s(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A score with its 95 % interval, whoever's it is."""

    score_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One run that ranks: seconds, lower is better, with the 95 % interval of the measurement."""

    person_id: int
    person: str
    submission_id: int
    run_id: int
    score_s: float
    low_s: float
    high_s: float
    at: datetime
    file_name: str


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One line of a leaderboard. `tied_with` are the ranks that this one can't be told apart from."""

    rank: int
    tied_with: tuple[int, ...]
    entry: Entry

    @property
    def best_rank(self) -> int:
        """The best place that the measurements allow."""
        return min((self.rank, *self.tied_with))

    @property
    def worst_rank(self) -> int:
        """The worst place that the measurements allow."""
        return max((self.rank, *self.tied_with))


@dataclass(frozen=True, kw_only=True)
class RecordChange:
    """A new first place. `ahead_s` is by how much, `separated` whether by more than the measurements' doubt."""

    entry: Entry
    before: Entry | None
    ahead_s: float | None
    separated: bool


def ranked(entries: Iterable[Entry]) -> list[Standing]:
    """Each person's best entry, in order. Equal scores: the earlier submission is ahead."""
    best: dict[int, Entry] = {}
    for entry in entries:
        held = best.get(entry.person_id)
        if held is None or _order(entry) < _order(held):
            best[entry.person_id] = entry
    rows = sorted(best.values(), key=_order)
    ties, apart = _ties(rows), _apart(rows[:TOP])
    return [
        Standing(rank=n, tied_with=_together(n, tied, apart, len(rows)), entry=entry)
        for n, (entry, tied) in enumerate(zip(rows, ties, strict=True), start=1)
    ]


def separated(one: Timed, other: Timed) -> bool:
    """Whether the measurements tell the two apart: the interval of the difference leaves zero out, and it is no
    trifle. The two were measured on their own, so the half-widths of their logarithms add as squares."""
    return _difference(one, other) > max(LEAST_DIFFERENCE, math.hypot(_half_width(one), _half_width(other)))


def overlap(one: Timed, other: Timed) -> bool:
    """Whether the measurements can't tell the two apart."""
    return not separated(one, other)


def _difference(one: Timed, other: Timed) -> float:
    """Of the logarithms, the same whoever is asked about first."""
    return math.log(max(one.score_s, other.score_s) / min(one.score_s, other.score_s))


def _apart(rows: Sequence[Timed]) -> set[tuple[int, int]]:
    """The pairs of these, by their places, that are told apart when all of them are judged together (Holm)."""
    pairs = sorted((_luck(rows[one], rows[other]), one, other) for one, other in combinations(range(len(rows)), 2))
    found = set()
    for held, (luck, one, other) in enumerate(pairs):
        if luck > ALPHA / (len(pairs) - held):
            break
        found |= {(one, other), (other, one)}
    return found


def _luck(one: Timed, other: Timed) -> float:
    """How likely two that are equally fast differ by so much, by a t test for two that vary differently (Welch)."""
    first, second = (_half_width(timed) / T95 for timed in (one, other))
    difference, doubt = _difference(one, other), math.hypot(first, second)
    if doubt == 0:
        return 0.0 if difference > 0 else 1.0
    freedom = DEGREES * doubt**4 / (first**4 + second**4)
    return _two_sided(difference / doubt, 2 * int(freedom / 2 + 1e-9))


def _two_sided(t: float, degrees: int) -> float:
    """The share of Student's t beyond ±t, for an even number of degrees of freedom."""
    angle = math.atan(t / math.sqrt(degrees))
    square, term, whole = math.cos(angle) ** 2, 1.0, 1.0
    for step in range(1, degrees // 2):
        term *= square * (2 * step - 1) / (2 * step)
        whole += term
    return max(0.0, 1.0 - math.sin(angle) * whole)


def _half_width(timed: Timed) -> float:
    above = math.log(timed.high_s / timed.score_s)
    return (above + math.log(timed.score_s / timed.low_s)) / 2 if timed.low_s > 0 else above


def record_change(before: Iterable[Entry], entry: Entry) -> RecordChange | None:
    """What changes at the top when this entry joins those before it; None when somebody (or its owner) stays ahead."""
    leaders = ranked(before)
    if not leaders:
        return RecordChange(entry=entry, before=None, ahead_s=None, separated=True)
    leader = leaders[0].entry
    if _order(leader) <= _order(entry):
        return None
    return RecordChange(
        entry=entry, before=leader, ahead_s=leader.score_s - entry.score_s, separated=not overlap(entry, leader)
    )


def _order(entry: Entry) -> tuple[float, datetime, int, int]:
    return (entry.score_s, entry.at, entry.submission_id, entry.run_id)


def _ties(rows: Sequence[Entry]) -> list[tuple[int, ...]]:
    """Of each row the ranks that it can't be told from. Rows come by score, so only neighbours are compared, and the
    few with much more doubt than most are compared with all: boards have thousands of rows."""
    logs = [math.log(row.score_s) for row in rows]
    doubts = [_half_width(row) for row in rows]
    usual = WIDE * sorted(doubts)[len(doubts) // 2] if doubts else 0.0
    wide = {n for n, doubt in enumerate(doubts) if not doubt <= usual}
    widest = max((doubt for n, doubt in enumerate(doubts) if n not in wide), default=0.0)
    found: list[list[int]] = [[] for _ in rows]

    def compare(one: int, other: int) -> None:
        apart, doubt = logs[other] - logs[one], max(LEAST_DIFFERENCE, math.hypot(doubts[one], doubts[other]))
        if abs(apart - doubt) < CLOSE:  # a difference of two logarithms isn't quite the logarithm of the ratio
            apart = _difference(rows[one], rows[other])
        if not apart > doubt:
            found[one].append(other + 1)
            found[other].append(one + 1)

    for here in range(len(rows)):
        if here in wide:
            for other in range(len(rows)):
                # Of two such rows the upper one has met the lower one already.
                if other != here and not (other in wide and other < here):
                    compare(min(here, other), max(here, other))
            continue
        # A little further than doubt reaches: what is at its very end is for `compare` to say.
        reach = max(LEAST_DIFFERENCE, math.hypot(doubts[here], widest)) + CLOSE
        for other in range(here + 1, bisect_right(logs, logs[here] + reach)):
            if other not in wide:
                compare(here, other)
    return [tuple(sorted(ranks)) for ranks in found]


def _together(rank: int, tied: tuple[int, ...], apart: set[tuple[int, int]], count: int) -> tuple[int, ...]:
    """The ranks that this one can't be told from: by pairs, and among the first also with all pairs in mind."""
    if rank > TOP:
        return tied
    more = {n + 1 for n in range(min(TOP, count)) if n + 1 != rank and (rank - 1, n) not in apart}
    return tuple(sorted(more.union(tied)))
