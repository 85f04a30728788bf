"""How long until something, in words that a script replaces by a clock."""

from __future__ import annotations

from datetime import datetime, timedelta


def left(until: datetime, now: datetime) -> str:
    """`2 days 3 h`, `5 h 12 min`, `4 min`: whole minutes, so that a page says the same for a while."""
    rest = max(until - now, timedelta())
    days, hours, minutes = rest.days, rest.seconds // 3600, rest.seconds % 3600 // 60
    if days:
        return f"{days} day{'' if days == 1 else 's'} {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else "less than a minute"
