"""Fair queueing by virtual time per person, so that one person's burst never starves another.

Every accepted run is stamped once with `fair_at`; the queue takes the smallest. A person's runs push one another back:
each is stamped no earlier than the previous one plus its expected cost. A person who was inactive starts from now,
without penalty or credit.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

DEFAULT_COST_S = 60.0

# The runs of service tokens are stamped from here on, centuries behind everyone's: they are only claimed while no
# person's run waits for the same slot. SQL compares with it, so it never changes.
SERVICE_FROM = datetime(2500, 1, 1, tzinfo=UTC)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


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


def service_fair_at(
    now: datetime, last_fair_at: datetime | None, *, cost_s: float = DEFAULT_COST_S, weight: float = 1.0
) -> datetime:
    """As `fair_at`, among the runs of service tokens: fair between their owners, and behind every person's run.
    `last_fair_at` is that of the owner's latest open run of that kind."""
    return fair_at(SERVICE_FROM + (now - _EPOCH), last_fair_at, cost_s=cost_s, weight=weight)
