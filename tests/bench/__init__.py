"""Speed as ratios inside one run: what a machine is worth cancels out. Each module here has `run() -> list[Row]`.

A module whose `CLUSTER` is true needs the test cluster and is run by `make bench-cluster` alone, the others by
`make bench`; one whose `APART` is true is run only where it is named. `scaled(n)` is how many a module should do of
what it would do n of.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

SCALE = 1.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table. `ratio` is what the aim speaks of; without an aim the line only informs, and without a
    value it says why nothing was measured."""

    name: str
    value: float | None
    unit: str
    against: str = ""
    ratio: float | None = None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the aim is met, when there is one. It speaks of the ratio, or of the value where there is none."""
        said = self.value if self.ratio is None else self.ratio
        if said is None:
            return None
        if self.at_least is not None:
            return said >= self.at_least
        if self.at_most is not None:
            return said <= self.at_most
        return None


def scaled(count: int, *, least: int = 1) -> int:
    """So many, in a run of this size."""
    return max(least, int(count * SCALE))


def seconds_each(act: Callable[[], object], count: int, prepare: Callable[[], object] = tuple) -> list[float]:
    """How long each of `count` calls took, without what `prepare` did before it."""
    took = []
    for _ in range(count):
        prepare()
        began = perf_counter()
        act()
        took.append(perf_counter() - began)
    return took


def in_turns(
    one: Callable[[], object], other: Callable[[], object], count: int, *, prepare: Callable[[], object] = tuple
) -> tuple[list[float], list[float]]:
    """`count` calls of each, in turns of a few, so that whatever else the machine does hits both alike."""
    turn = max(1, count // 20)
    first: list[float] = []
    second: list[float] = []
    while len(first) < count:
        first += seconds_each(one, turn, prepare)
        second += seconds_each(other, turn)
    return first, second


def percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]
