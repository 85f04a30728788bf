"""Ranking as a pure function of scored runs. The caller passes the entries of one board and one GPU type.

A score is an interval, not a number: two entries can't be separated, whatever their order, where the 95 % interval of
the difference of their logarithms contains zero, or where they differ by no more than 0.5 %. The first twenty form 190
pairs, of which one in twenty would be separated by chance; for those, Holm's procedure is stricter, so that on 19
boards out of 20 no pair is separated by chance. The order is still total (score, then the earlier submission), since a
table has rows; `tied_with` has the ties.

Ties are about two entries. A rank is about all of them, so each row also has a set of ranks, such that on 19 boards out
of 20 every row's true rank is in its set: the pairs of the whole board are tested together (Bonferroni; Holm where they
are few), as far as intervals cover what differs between runs.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import combinations, islice
from typing import Protocol, overload

from kbslurm_eval.shared.timing import t95

CLOSE = 1e-9
BLOCK = 32  # rows whose uncertainty is first checked as one block
TIES_TOLD = 50
LEAST_DIFFERENCE = 0.005  # of the logarithms: smaller differences never decide a rank
TOP = 20  # whose pairs are tested together
ALPHA = 0.05
DEGREES = 4  # of each interval: five launches, the default of problems


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
    """A score with its 95 % interval."""

    score_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A run that ranks: seconds, lower is better, with the 95 % interval of the measurement. On a board on which teams
    count together, `team` is the one that it was submitted for, and `person` is what that is called."""

    person_id: int
    person: str
    submission_id: int
    run_id: int
    score_s: float
    low_s: float
    high_s: float
    at: datetime
    file_name: str
    team: str | None = None

    @property
    def side(self) -> int | str:
        """For whom it counts: the team, or the person."""
        return self.person_id if self.team is None else self.team


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One line of a leaderboard. `tied_with` are the ranks that it is tied with within measurement error, at most the
    nearest `TIES_TOLD`; `best_rank` and `worst_rank` limit the ranks that its own ties allow, `ranks` those that it can
    have with 95 % confidence for all rows at once."""

    rank: int
    tied_with: tuple[int, ...]
    best_rank: int
    worst_rank: int
    ranks: tuple[int, int]
    entry: Entry


def ranked(entries: Iterable[Entry]) -> list[Standing]:
    """The best entry of each person, or team, in order. With equal scores, the earlier submission is ahead."""
    return list(Ranking(entries))


class Ranking(Sequence[Standing]):
    """The same, but computing a row's ties only when it is read: boards have thousands of rows, pages a few."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        best: dict[int | str, Entry] = {}
        for entry in entries:
            held = best.get(entry.side)
            if held is None or _order(entry) < _order(held):
                best[entry.side] = entry
        self.entries = sorted(best.values(), key=_order)
        self._logs = [math.log(row.score_s) for row in self.entries]
        self._doubts = [_half_width(row) for row in self.entries]
        self._widest = [_largest(self._doubts[n : n + BLOCK]) for n in range(0, len(self.entries), BLOCK)]
        self._most = _largest(self._widest)
        self._extremes = _extremes(self._doubts)
        self._apart = _apart(self.entries[:TOP])
        pairs = max(1, len(self.entries) * (len(self.entries) - 1) // 2)
        self._beyond = {degrees: _quantile(ALPHA / pairs, degrees) for degrees in (4, 6, 8)}

    @cached_property
    def index_of(self) -> Mapping[int | str, int]:
        """Where each side stands among the entries, from 0 on."""
        return {entry.side: n for n, entry in enumerate(self.entries)}

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, index: int) -> Standing: ...
    @overload
    def __getitem__(self, index: slice) -> list[Standing]: ...
    def __getitem__(self, index: int | slice) -> Standing | list[Standing]:
        found = range(len(self.entries))[index]
        return self._standing(found) if isinstance(found, int) else [self._standing(row) for row in found]

    def _standing(self, row: int) -> Standing:
        above, below = self._above(row), self._below(row)
        near = [*islice(self._tied(row, above[::-1]), TIES_TOLD), *islice(self._tied(row, below), TIES_TOLD)]
        far = [*islice(self._tied(row, above), 1), *islice(self._tied(row, below[::-1]), 1)]
        if row < TOP:  # among the first, also the ties from testing all pairs together
            near += (n for n in range(min(TOP, len(self))) if n != row and (row, n) not in self._apart)
        told = sorted(set(near), key=lambda other: (abs(other - row), other))[:TIES_TOLD]
        return Standing(
            rank=row + 1,
            tied_with=tuple(sorted(other + 1 for other in told)),
            best_rank=min((row, *near, *far)) + 1,
            worst_rank=max((row, *near, *far)) + 1,
            ranks=self._ranks(row),
            entry=self.entries[row],
        )

    def _above(self, row: int) -> range:
        """Where ties ahead can start: no further than the largest uncertainty reaches."""
        return range(bisect_left(self._logs, self._logs[row] - self._reach(row, self._most), hi=row), row)

    def _below(self, row: int) -> range:
        return range(row + 1, bisect_right(self._logs, self._logs[row] + self._reach(row, self._most), lo=row + 1))

    def _tied(self, row: int, where: range) -> Iterator[int]:
        """The rows among these, in order, that this one is tied with. Blocks beyond everyone's uncertainty are
        skipped."""
        step, here = where.step, where.start
        while here in where:
            block = here // BLOCK
            # The first row beyond this block, in search direction.
            beyond = (block + 1) * BLOCK if step > 0 else block * BLOCK - 1
            part = range(here, min(beyond, where.stop) if step > 0 else max(beyond, where.stop), step)
            nearest = part[0] if (step > 0) == (here > row) else part[-1]
            if abs(self._logs[nearest] - self._logs[row]) <= self._reach(row, self._widest[block]):
                yield from (other for other in part if self._ties(row, other))
            here = beyond

    def _ranks(self, row: int) -> tuple[int, int]:
        """The first and the last rank of its set."""
        if len(self) <= TOP:
            sure = [n for n in range(len(self)) if (row, n) in self._apart and self._gap(row, n) > LEAST_DIFFERENCE]
            ahead = sum(n < row for n in sure)
            return 1 + ahead, len(self) - (len(sure) - ahead)
        return 1 + row - self._doubtful(row, range(row)), row + 1 + self._doubtful(row, range(row + 1, len(self)))

    def _doubtful(self, row: int, rows: range) -> int:
        """How many of these, all on one side of it, may be equal to it when all pairs of the board are tested
        together. Of most blocks all or none are."""
        return self._doubtful_in(row, rows.start, rows.stop, len(self._extremes) - 1)

    def _doubtful_in(self, row: int, start: int, stop: int, level: int) -> int:
        if level < 0:
            return sum(not self._surely_apart(row, other) for other in range(start, stop))
        count, size, mine, at = 0, BLOCK ** (level + 1), self._doubts[row], self._logs[row]
        while start < stop:
            end = min((start // size + 1) * size, stop)
            near, far = sorted((abs(self._logs[start] - at), abs(self._logs[end - 1] - at)))
            narrowest, widest = self._extremes[level][start // size]
            degrees = _freedom(mine, narrowest), _freedom(mine, widest)
            most = 2 * DEGREES if narrowest < mine < widest else max(degrees)
            if far <= self._together(most, mine, narrowest):
                count += end - start
            elif near <= self._together(min(degrees), mine, widest) + CLOSE:
                count += self._doubtful_in(row, start, end, level - 1)
            start = end
        return count

    def _surely_apart(self, row: int, other: int) -> bool:
        one, two = self._doubts[row], self._doubts[other]
        return self._gap(row, other) > self._together(_freedom(one, two), one, two)

    def _together(self, degrees: int, one: float, other: float) -> float:
        """The largest difference of two with these half-widths that can be chance on a board of this size."""
        return max(LEAST_DIFFERENCE, self._beyond[degrees] * math.hypot(one, other) / t95(DEGREES))

    def _gap(self, row: int, other: int) -> float:
        return abs(self._logs[other] - self._logs[row])

    def _reach(self, row: int, widest: float) -> float:
        """Slightly beyond the uncertainty: `_ties` decides about the rows at its edge."""
        return max(LEAST_DIFFERENCE, math.hypot(self._doubts[row], widest)) + CLOSE

    def _ties(self, row: int, other: int) -> bool:
        apart = abs(self._logs[other] - self._logs[row])
        doubt = max(LEAST_DIFFERENCE, math.hypot(self._doubts[row], self._doubts[other]))
        if (
            abs(apart - doubt) < CLOSE
        ):  # in floating point, a difference of logarithms isn't exactly the logarithm of the ratio
            apart = _difference(self.entries[row], self.entries[other])
        return not apart > doubt


def separated(one: Timed, other: Timed) -> bool:
    """Whether the two differ by more than measurement error: the interval of the difference excludes zero, and the
    difference isn't negligible. They were measured independently, so the half-widths of their logarithms add as
    squares."""
    return _difference(one, other) > max(LEAST_DIFFERENCE, math.hypot(_half_width(one), _half_width(other)))


def _difference(one: Timed, other: Timed) -> float:
    """The difference of the logarithms, symmetric in its arguments."""
    return math.log(max(one.score_s, other.score_s) / min(one.score_s, other.score_s))


def _apart(rows: Sequence[Timed]) -> set[tuple[int, int]]:
    """The pairs of these, by index, that are separated when all are tested together (Holm)."""
    pairs = sorted((_luck(rows[one], rows[other]), one, other) for one, other in combinations(range(len(rows)), 2))
    found = set()
    for held, (luck, one, other) in enumerate(pairs):
        if luck > ALPHA / (len(pairs) - held):
            break
        found |= {(one, other), (other, one)}
    return found


def _luck(one: Timed, other: Timed) -> float:
    """The probability that two equally fast ones differ this much, by a t test with unequal variances (Welch)."""
    first, second = (_half_width(timed) / t95(DEGREES) for timed in (one, other))
    difference, doubt = _difference(one, other), math.hypot(first, second)
    if doubt == 0:
        return 0.0 if difference > 0 else 1.0
    return _two_sided(difference / doubt, _freedom(first, second))


def _freedom(one: float, other: float) -> int:
    """The degrees of freedom of the difference of two with these half-widths (Welch), rounded down to an even one."""
    large = max(one, other)
    if large == 0 or math.isinf(large):
        return DEGREES
    share = (min(one, other) / large) ** 2  # free of underflow
    return 2 * int(DEGREES * (1 + share) ** 2 / (1 + share**2) / 2 + 1e-9)


def _quantile(luck: float, degrees: int) -> float:
    """The t that two equals exceed with this probability."""
    low, high = 0.0, 1.0
    while _two_sided(high, degrees) > luck:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _two_sided(middle, degrees) > luck else (low, middle)
    return high


def _two_sided(t: float, degrees: int) -> float:
    """Student's t probability beyond ±t, for an even number of degrees of freedom."""
    angle = math.atan(t / math.sqrt(degrees))
    square, term, total = math.cos(angle) ** 2, 1.0, 1.0
    for step in range(1, degrees // 2):
        term *= square * (2 * step - 1) / (2 * step)
        total += term
    return max(0.0, 1.0 - math.sin(angle) * total)


def _half_width(timed: Timed) -> float:
    """Half of its interval, in logarithms; but all of the slow side if that is more: so far reaches what a score
    doesn't show of the work that is put off until a few calls."""
    above = math.log(timed.high_s / timed.score_s)
    return max(above, (above + math.log(timed.score_s / timed.low_s)) / 2) if timed.low_s > 0 else above


def records(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that were better than all before them, oldest first."""
    found: list[Entry] = []
    for entry in sorted(entries, key=lambda one: (one.at, one.submission_id, one.score_s, one.run_id)):
        if not found or entry.score_s < found[-1].score_s:
            found.append(entry)
    return found


def _order(entry: Entry) -> tuple[float, datetime, int, int]:
    return (entry.score_s, entry.at, entry.submission_id, entry.run_id)


def _largest(doubts: Sequence[float]) -> float:
    """The largest of these; NaN counts as infinite."""
    return max((math.inf if math.isnan(doubt) else doubt for doubt in doubts), default=0.0)


def _extremes(doubts: Sequence[float]) -> list[list[tuple[float, float]]]:
    """The narrowest and the widest of each block, then of each block of blocks, and so on up to one of all."""
    levels = [[(doubt, doubt) for doubt in doubts]]
    while not levels[1:] or len(levels[-1]) > 1:
        parts = (levels[-1][n : n + BLOCK] for n in range(0, len(levels[-1]), BLOCK))
        levels.append([(min(low for low, _ in part), _largest([high for _, high in part])) for part in parts])
    return levels[1:]
