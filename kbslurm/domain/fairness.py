"""Who is next: virtual time per person, so that a burst by one never starves another.

Every accepted run is stamped once with `fair_at`; the queue takes the smallest. A person's runs pay for one
another: each is stamped no earlier than the one before plus what that one is expected to cost. A person who has
been away starts from now, neither punished for the past nor paid for it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

DEFAULT_COST_S = 60.0


def fair_at(
    now: datetime, last_fair_at: datetime | None, *, cost_s: float = DEFAULT_COST_S, weight: float = 1.0
) -> datetime:
    """The virtual moment of a person's next run. `last_fair_at` is that of their latest run that still waits or runs.

    Monotone in `now` and in `last_fair_at`, never before now, and at least cost/weight behind the person's last.
    """
    if weight <= 0 or cost_s < 0:
        raise ValueError("a weight is positive, a cost isn't negative")
    if last_fair_at is None:
        return now
    return max(now, last_fair_at + timedelta(seconds=cost_s / weight))
