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
TIMES, MORE_NS = 2.0, 300_000  # half of a launch's take longer than half of all those alone by so much
LEAST_LAUNCHES = 3  # in so many launches and in most of them
BUSY_TIMES = 1.5  # and that is so many times as much as what its own calls scatter by: a machine that is busy hits both


class HeldUp:
    """One phase's launches: by case, how many times as long the baseline's calls took beside the submission."""

    def __init__(self) -> None:
        self._alone: dict[int, list[int]] = {}
        self._own: dict[int, list[int]] = {}
        self._beside: dict[int, list[float]] = {}

    def add(self, index: int, alone: Sequence[int], beside: Sequence[int], own: Sequence[int]) -> None:
        """One launch: the baseline's calls before the submission came, those that were timed, and the submission's."""
        if not alone or not beside:
            return
        self._alone.setdefault(index, []).extend(alone)
        self._own.setdefault(index, []).extend(own)
        self._beside.setdefault(index, []).append(statistics.median(beside))

    def evidence(self) -> str:
        """What there is to say to staff; empty if there is nothing."""
        for index, beside in sorted(self._beside.items()):
            usual, typical = statistics.median(self._alone[index]), statistics.median(beside)
            slower = sum(found > TIMES * usual + MORE_NS for found in beside)
            busy = BUSY_TIMES * _scatter(self._own[index])
            if slower >= LEAST_LAUNCHES and 2 * slower > len(beside) and typical > busy * usual:
                return (
                    f"in {slower} of {len(beside)} launches half of the baseline's calls took more than twice as long"
                    f" beside this submission as before it was there, {typical / usual:.1f} times in the median"
                    f" (benchmark {index + 1}): does it leave work behind that slows others?"
                )
        return ""


def _scatter(own: Sequence[int]) -> float:
    """How many times as long as its fastest tenth half of its calls take: what makes more of it makes them slower."""
    return statistics.median(own) / max(1, statistics.quantiles(own, n=10)[0]) if len(own) > 1 else 1.0
