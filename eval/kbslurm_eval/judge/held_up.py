"""Whether the baseline is slower beside a submission than before it was there.

Everything that a submission has is stopped while the baseline is timed, and all that it may leave to the kernel is
refused or waited for, as far as that is known. Whoever finds another way makes the baseline slower, and so its own
ratio better. So a few of the baseline's calls are made before each launch has the submission, and staff are told if
those beside it take twice as long again and again. It changes no figure: a machine may have become busy.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

HELD_UP = "HELD_UP"
TIMES, MORE_NS = 2.0, 300_000  # half of them take longer than three quarters of those alone by so much
LEAST_LAUNCHES = 3  # in so many launches and in most of them
# What one launch leaves may still be there when the next one begins: usual is what the fastest one shows.


class HeldUp:
    """One phase's launches: by case, how many times as long the baseline's calls took beside the submission."""

    def __init__(self) -> None:
        self._alone: dict[int, list[float]] = {}
        self._beside: dict[int, list[float]] = {}

    def add(self, index: int, alone: Sequence[int], beside: Sequence[int]) -> None:
        """One launch: the baseline's calls before the submission came, and those that were timed."""
        if len(alone) < 2 or len(beside) < 2:
            return
        self._alone.setdefault(index, []).append(statistics.quantiles(alone, n=4)[2])
        self._beside.setdefault(index, []).append(statistics.median(beside))

    def evidence(self) -> str:
        """What there is to say to staff; empty if there is nothing."""
        for index, beside in sorted(self._beside.items()):
            usual = min(self._alone[index])
            slower = sum(found > TIMES * usual + MORE_NS for found in beside)
            if slower >= LEAST_LAUNCHES and 2 * slower > len(beside):
                return (
                    f"in {slower} of {len(beside)} launches half of the baseline's calls took more than twice as long"
                    f" beside this submission as before it was there, {statistics.median(beside) / usual:.1f} times in"
                    f" the median (benchmark {index + 1}): does it leave work behind that slows others?"
                )
        return ""
