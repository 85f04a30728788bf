"""How long until something, in words that a script may replace by a clock: the one way in which pages say it."""

from __future__ import annotations

from datetime import datetime, timedelta

FAR = timedelta(days=400)


def left(until: datetime | None, now: datetime) -> str:
    """`2 days 3 h`, `5 h 12 min`, `4 min`, `less than a minute`: whole minutes, so that a page says the same for a
    while. Empty if there is no end, it has passed, or it is so far off that nobody counts the days."""
    if until is None or until <= now or until - now > FAR:
        return ""
    rest = until - now
    days, hours, minutes = rest.days, rest.seconds // 3600, rest.seconds % 3600 // 60
    if days:
        return f"{days} day{'' if days == 1 else 's'}{f' {hours} h' if hours else ''}"
    if hours:
        return f"{hours} h{f' {minutes} min' if minutes else ''}"
    return f"{minutes} min" if minutes else "less than a minute"
