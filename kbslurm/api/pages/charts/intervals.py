"""Scores with their intervals on one common axis, so that the eye sees which overlap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kbslurm.api.pages.charts.scales import Axis, axis_of, round_values
from kbslurm.domain.amounts import NOISY
from kbslurm.domain.board import Timed

DECADES_FROM = 4.0  # intervals are those of logarithms: scores that far apart stand on a logarithmic axis
TICKS = 4
WIDE, GAP = 17.0, 2.0  # of a tick's text, in percent of the axis as it is on a desk
# At which end of its tick a text stands, how much of it before the tick, and up to where on the axis.
_ANCHORS = (("start", 0.0, 12.0), ("middle", 0.5, 88.0), ("end", 1.0, 100.0))


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A tick with its text, and to which side of it that is written."""

    at: float
    text: str
    anchor: str


@dataclass(frozen=True, kw_only=True)
class Bar:
    """An interval and its score, in percent of the axis."""

    low: float
    wide: float
    at: float


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """The axis once, and a bar for each row."""

    ticks: tuple[Mark, ...]
    bars: tuple[Bar, ...]
    is_log: bool


def intervals(rows: Sequence[Timed], *, written: Callable[[float], str]) -> Intervals:
    """These rows' bars. One that is too noisy to be compared doesn't stretch the axis: it ends at the axis' ends."""
    if not rows:
        return Intervals(ticks=(), bars=(), is_log=False)
    axis = _axis(rows)
    ticks = _ticks(axis, written)
    return Intervals(ticks=ticks, bars=tuple(_bar(axis, row) for row in rows), is_log=axis.log)


def _ticks(axis: Axis, written: Callable[[float], str]) -> tuple[Mark, ...]:
    """Round values, without those whose texts would run into the one before."""
    kept: list[Mark] = []
    ends = -GAP
    for value in round_values(axis, TICKS):
        at = axis.at(value)
        anchor, begins = next((name, at - WIDE * share) for name, share, upto in _ANCHORS if at <= upto)
        if begins >= ends + GAP:
            kept.append(Mark(at=at, text=written(value), anchor=anchor))
            ends = begins + WIDE
    return tuple(kept)


def _axis(rows: Sequence[Timed]) -> Axis:
    values = [row.score_s for row in rows]
    for row in rows:
        if (row.high_s - row.low_s) / 2 < NOISY * row.score_s:
            values += [row.low_s, row.high_s]
    found = axis_of(values, margin=0.03)
    low, high = min(values), max(values)
    if low > 0 and high / low >= DECADES_FROM and not found.log:
        room = (high / low) ** 0.03
        return Axis(low=low / room, high=high * room, log=True)
    return found


def _bar(axis: Axis, row: Timed) -> Bar:
    low = axis.at(max(row.low_s, axis.low)) if math.isfinite(row.low_s) else 0.0
    high = axis.at(min(row.high_s, axis.high)) if math.isfinite(row.high_s) else 100.0
    return Bar(low=low, wide=round(max(0.4, high - low), 2), at=axis.at(row.score_s))
