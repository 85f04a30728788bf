"""What a board's page says in words: how much time is left, and where its reader stands."""

from __future__ import annotations

from datetime import datetime, timedelta

from kbslurm.domain.amounts import counted

_SPANS = ((timedelta(days=1), "day"), (timedelta(hours=1), "hour"), (timedelta(minutes=1), "minute"))
FAR = timedelta(days=400)


def time_left(until: datetime | None, now: datetime) -> str:
    """`3 days`, `1 day 4 hours`, `12 minutes`, `less than a minute`; empty if there is no end, or it has passed,
    or is so far off that nobody counts the days."""
    if until is None or until <= now or until - now > FAR:
        return ""
    left = until - now
    for (size, name), below in zip(_SPANS, (*_SPANS[1:], None), strict=True):
        if left < size:
            continue
        whole = left // size
        rest = 0 if below is None or whole >= 2 else (left - whole * size) // below[0]
        return counted(whole, name) + (f" {counted(rest, below[1])}" if rest and below else "")
    return "less than a minute"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `12th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
