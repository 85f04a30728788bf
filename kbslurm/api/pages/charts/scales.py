"""Axes: where a value stands in percent, and which round values are written beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
DECADES_FROM = 30.0  # values that far apart stand on a logarithmic axis
MARGIN = 0.06  # of the axis: nothing is drawn on its very end
_SPANS = (
    timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=15), timedelta(hours=1), timedelta(hours=3),
    timedelta(hours=6), timedelta(hours=12), timedelta(days=1), timedelta(days=2), timedelta(days=7),
    timedelta(days=14), timedelta(days=30), timedelta(days=91), timedelta(days=182), timedelta(days=365),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Tick:
    """Something written at an axis, and where, in percent."""

    at: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Axis:
    """From `low` to `high`, either may be any number; in decades where `log`."""

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """In percent of the axis, within it."""
        low, high, value = (math.log10(v) for v in (self.low, self.high, value)) if self.log else self._plain(value)
        share = (value - low) / (high - low) if high > low else 0.5
        return round(100 * min(1.0, max(0.0, share)), 2)

    def _plain(self, value: float) -> tuple[float, float, float]:
        return self.low, self.high, value


def axis_of(values: Sequence[float], *, margin: float = MARGIN) -> Axis:
    """An axis that has room for all of these, at least one. Positive values that are far apart get decades."""
    low, high = min(values), max(values)
    if low > 0 and high / low >= DECADES_FROM:
        room = (high / low) ** margin
        return Axis(low=low / room, high=high * room, log=True)
    room = (high - low) * margin or abs(high) * margin or 1.0
    # Times aren't negative, and neither is an axis for them.
    return Axis(low=max(0.0, low - room) if low >= 0 else low - room, high=high + room)


def round_values(axis: Axis, wanted: int = 5) -> list[float]:
    """About so many round values within an axis."""
    if axis.log:
        first, last = math.ceil(math.log10(axis.low)), math.floor(math.log10(axis.high))
        decades = [10.0**n for n in range(first, last + 1)]
        if len(decades) < 3:
            decades = [k * 10.0**n for n in range(first - 1, last + 1) for k in (1, 2, 5)]
        found = [value for value in decades if axis.low <= value <= axis.high]
        return found[:: max(1, math.ceil(len(found) / (wanted + 1)))]
    span = axis.high - axis.low
    if not span > 0:
        return [axis.low]
    rough = span / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * one for one in STEPS if power * one >= rough * 0.999)
    first = math.ceil(axis.low / step - 1e-9)
    return [n * step for n in range(first, math.floor(axis.high / step + 1e-9) + 1)]


def moments(first: datetime, last: datetime, zone: str, wanted: int = 5) -> list[tuple[datetime, str]]:
    """About so many round moments between two, in a board's zone, as an axis has them."""
    home = ZoneInfo(zone)
    first, last = first.astimezone(home), last.astimezone(home)
    span = last - first
    step = next((one for one in _SPANS if span / one <= wanted + 1), _SPANS[-1])
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
    # Counted on the clock on the wall, so that a day stays a day when clocks change.
    at, found = midnight.replace(tzinfo=None), []
    while step and at <= last.replace(tzinfo=None):
        moment = at.replace(tzinfo=home)
        if moment >= first:
            found.append((moment, _words(moment, step, several_days=first.date() != last.date())))
        at += step
    return found


def _words(at: datetime, step: timedelta, *, several_days: bool) -> str:
    if step >= timedelta(days=30):
        return f"{at:%b %Y}"
    if step >= timedelta(days=1) or (several_days and at.hour == at.minute == 0):
        return f"{at.day} {at:%b}"
    return f"{at:%H:%M}"
