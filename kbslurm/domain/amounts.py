"""Durations as shown everywhere: three significant digits and a suitable unit."""

from __future__ import annotations

import math

NOISY = 0.25  # from this spread on the two sides of an interval are no help: they can be thousands of times the value
SPREAD_SHOWN = 10.0  # above this it is only said to be more
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def seconds(value: float | None) -> str:
    """1.234e-3 → `1.23 ms`: three significant digits and a suitable unit."""
    if value is None:
        return "–"
    size, unit = unit_of(value)
    return f"{_digits(value / size)} {unit}"


def unit_of(value: float, digits: int = 3) -> tuple[float, str]:
    """The largest unit of which this is at least one when it is rounded to so many digits: 999.9 µs is 1.00 ms."""
    least = 1 - 0.5 * 10**-digits
    return next((one for one in UNITS if abs(value) >= least * one[0]), UNITS[-1])


def counted(number: int, what: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `11th`, `1,000th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def span(amount_s: float) -> str:
    """A duration in a single unit; in ms below a second."""
    if amount_s < 1:
        return f"{max(0.0, amount_s) * 1000:.0f} ms"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if amount_s >= 2 * size:
            return f"{amount_s / size:.0f} {unit}"
    return f"{amount_s:.1f} s" if amount_s < 10 else f"{amount_s:.0f} s"


def score(value: float | None, low: float | None = None, high: float | None = None, *, ranked: bool = False) -> str:
    """A score with both sides of its interval, `7.20 ms +0.40 −0.40`; of a noisy one the spread instead,
    `6.00 ms, too noisy to rank: spread 40 %`. `ranked`: it has a place on a board all the same."""
    if value is None:
        return "–"
    size, unit = unit_of(value)
    if low is None or high is None or high <= low:
        return f"{_digits(value / size)} {unit}"
    below, above = (value - low) / size, (high - value) / size
    wide = max(below, above)
    spread = wide * size / abs(value) if value else math.inf
    if spread >= NOISY:
        percent = f"{100 * spread:.0f} %" if spread <= SPREAD_SHOWN else f"over {100 * SPREAD_SHOWN:.0f} %"
        how = "noisy" if ranked else "too noisy to rank"
        return f"{_digits(value / size)} {unit}, {how}: spread {percent}"
    places = max(0, 1 - math.floor(math.log10(wide))) if wide > 0 else 0
    shown = f"{value / size:.{places}f} {unit}"
    return f"{shown} +{above:.{places}f} −{below:.{places}f}"


def speed_up(now_s: float, other_s: float, other: str) -> str:
    """How a time compares with another's, where less is better: `1.06× faster than own best`, `as fast as own best`."""
    if now_s <= 0 or other_s <= 0:
        return f"can't be compared with {other}"
    ratio = other_s / now_s
    times = f"{max(ratio, 1 / ratio):.3g}"
    return f"as fast as {other}" if times == "1" else f"{times}× {'faster' if ratio > 1 else 'slower'} than {other}"


def _digits(value: float) -> str:
    magnitude = int(f"{value:.2e}".rpartition("e")[2])  # of what is shown: 9.999 is 10.0
    return f"{value:.{max(0, 2 - magnitude)}f}"
