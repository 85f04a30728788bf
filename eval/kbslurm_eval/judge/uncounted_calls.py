"""Calls that don't count: the first of several in one go, which waits for its runner to be awake, and one before a call
that follows somebody else's, which warms the caches.

A submission can tell by a clock which they are. Whatever it did in one of them for the calls that count, clearing their
tables for instance, would be free. So what such calls take beyond others, and beyond what caches and a busy machine
explain, is added to those that count.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

FREE_NS, FREE_TIMES = 2_000_000, 1.5  # what one may take, and in counted calls
BESIDE_TIMES = 2.0  # a machine that is busy makes the baseline's longer than its others, too
TOLD = (
    "calls that don't count, the first ones after others' turns, took much longer than those that do, and the"
    " difference is in the times of these"
)


def share(uncounted: Sequence[int], counted: Sequence[int], beside_ns: float = 0.0) -> int:
    """What each call that counts owes for those that don't, in ns. `beside_ns`: how much longer the baseline's are."""
    free = max(FREE_NS, FREE_TIMES * statistics.median(counted)) if counted else 0.0
    beyond = longer(uncounted, counted, free) - BESIDE_TIMES * beside_ns
    return round(beyond * len(uncounted) / len(counted)) if beyond > 0 else 0


def longer(uncounted: Sequence[int], counted: Sequence[int], free: float = 0.0) -> float:
    """How much longer they are than this, or than one that counts. Some are long on any busy machine: half aren't."""
    if not uncounted or not counted:
        return 0.0
    return max(0.0, statistics.median_low(uncounted) - max(free, statistics.median(counted)))
