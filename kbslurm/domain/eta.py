"""When a waiting run will start: a range, never a promise. Pure; the history is the caller's."""

from __future__ import annotations

import math
from dataclasses import dataclass

LAUNCH_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Service:
    """How long recent runs of a GPU type held their slot: the 10th and 90th percentiles, in seconds."""

    quick_s: float
    slow_s: float


def planned_in_s(expected_in_s: float) -> tuple[float, float]:
    """The same for a job that the cluster has planned: the plan assumes that all jobs before it use up their limits, so
    it will hardly start later, and possibly right now."""
    return 0.0, max(0.0, expected_in_s) + LAUNCH_S


def starts_in_s(ahead: int, open_now: int, slots: int, service: Service | None) -> tuple[float, float] | None:
    """The range, in seconds from now, in which a run with `ahead` runs before it will start. None: not known yet.

    `open_now` runs hold a slot already. A free slot means: at the daemon's next check.
    """
    if slots < 1:
        return None
    must_end = ahead + open_now - slots + 1
    if must_end <= 0:
        return 0.0, LAUNCH_S
    if service is None:
        return None
    turns = math.ceil(must_end / slots)
    return (turns - 1) * service.quick_s, turns * service.slow_s + LAUNCH_S
