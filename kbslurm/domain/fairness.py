"""Fair queueing by virtual time per person, so that one person's burst never starves another.

Every accepted run is stamped once with `fair_at`; the queue takes the smallest. A person's runs push one another back:
each is stamped no earlier than the previous one plus its expected cost. A person who was inactive starts from now,
without penalty or credit.
"""

from __future__ import annotations

from datetime import datetime, timedelta

DEFAULT_COST_S = 60.0


def fair_at(
    now: datetime, last_fair_at: datetime | None, *, cost_s: float = DEFAULT_COST_S, weight: float = 1.0
) -> datetime:
    """The virtual time of a person's next run. `last_fair_at` is that of their latest queued or running run.

    Monotone in `now` and in `last_fair_at`, never before now, and at least cost/weight behind the person's last.
    """
    if weight <= 0 or cost_s < 0:
        raise ValueError("the weight must be positive and the cost must not be negative")
    if last_fair_at is None:
        return now
    return max(now, last_fair_at + timedelta(seconds=cost_s / weight))
