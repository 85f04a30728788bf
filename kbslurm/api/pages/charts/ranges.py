"""Scores beside each other on one axis, each with its interval: whether two overlap is seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from kbslurm.api.pages.charts.scales import Tick, axis_of, round_values

Kind = Literal["", "other"]


@dataclass(frozen=True, kw_only=True)
class Range:
    """A score with its interval, whose it is, and how it is written."""

    name: str
    value: float
    low: float
    high: float
    score: str
    kind: Kind = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the chart, in percent."""

    name: str
    at: float
    low: float
    width: float
    score: str
    said: str
    kind: Kind


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """The whole chart."""

    rows: tuple[Row, ...]
    along: tuple[Tick, ...]


def ranges(found: Sequence[Range], *, written: Callable[[float], str]) -> Ranges | None:
    """These on one axis; None if there are fewer than two, which nothing can be seen of."""
    if len(found) < 2:
        return None
    axis = axis_of([value for one in found for value in (one.value, one.low, one.high) if value > 0])
    rows = tuple(
        Row(
            name=one.name,
            at=axis.at(one.value),
            low=axis.at(max(one.low, axis.low)),
            width=round(max(0.4, axis.at(one.high) - axis.at(max(one.low, axis.low))), 2),
            score=one.score,
            said=f"{one.name}: {one.score}",
            kind=one.kind,
        )
        for one in found
    )
    along = tuple(Tick(at=axis.at(value), text=written(value)) for value in round_values(axis))
    return Ranges(rows=rows, along=along)
