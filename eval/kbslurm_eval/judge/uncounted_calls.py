"""Calls that don't count: the first of several in one go, which waits for its runner to be awake; one before a call
that follows somebody else's, which warms the caches; and null calls while a submission is there.

A submission can tell by a clock, or by what it is asked, which they are. Whatever it did in one of them for the calls
that count, clearing their tables for instance, would be free. So what such calls take beyond others, and beyond what
caches and a busy machine explain, is added to those that count. All of it, since one call may do the work of many; but
no more than what most launches show, since on a busy machine any call may be long. What a launch owes beyond that, and
what is excused, is in its longest call. There it changes no figure, but whoever works in another place in each launch,
or within what is excused, has as long a tail in all of them, and an interval reaches as far.

Where the baseline makes such calls as well, one before each that follows somebody else's, all that they take longer is
in the longest call, and so it is with the baseline's: the mean of all calls, which cold caches make as much longer on
both sides, is what a submission can do at best that spares itself something in some of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kbslurm_eval.shared.wire import LaunchSamples, PhaseName

FREE_NS, FREE_TIMES = 2_000_000, 1.5  # what one may take, and in counted calls
SEEN_NS = 300_000  # from so much more than a counted one takes an interval shows it
BESIDE_TIMES = 2.0  # a machine that is busy makes the baseline's longer than its others, too
TOLD = (
    "calls that don't count (the first ones after others' turns, or empty ones) took much longer than those that do,"
    " and the difference is in the times of these"
)


@dataclass(frozen=True, kw_only=True)
class Share:
    """What each call that counts owes in one launch, in ns, and what it would if hardly anything were excused."""

    owed: float = 0.0
    seen: float = 0.0
    beside: float = 0.0  # what each of the baseline's does, where it is seen too


def share(
    uncounted: Sequence[int],
    counted: Sequence[int],
    beside_ns: float = 0.0,
    nulls: Sequence[int] = (),
    *,
    beside_each: float | None = None,
) -> Share:
    """What each call that counts owes for those that don't. `beside_ns`: how much longer the baseline's are;
    `beside_each`: the same for each of its calls that counts, where it makes such calls as this one does."""
    if not counted:
        return Share()
    usual = _usual(counted)

    def of(free: float, free_null: int, excused_ns: float) -> float:
        beyond = max(0.0, longer(uncounted, counted, free) - excused_ns) * len(uncounted)
        beyond += max(0.0, sum(nulls) - free_null * len(nulls))
        return beyond / len(counted)

    excused_ns = BESIDE_TIMES * beside_ns
    owed = of(max(FREE_NS, FREE_TIMES * usual), FREE_NS, excused_ns)
    if beside_each is not None:
        return Share(owed=owed, seen=max(owed, of(usual, SEEN_NS, 0.0)), beside=beside_each)
    return Share(owed=owed, seen=max(owed, of(usual + SEEN_NS, SEEN_NS, excused_ns)))


def longer(uncounted: Sequence[int], counted: Sequence[int], free: float = 0.0) -> float:
    """How much longer they are than this, or than one that counts, in the mean."""
    if not uncounted or not counted:
        return 0.0
    return max(0.0, statistics.fmean(uncounted) - max(free, _usual(counted)))


def beside(uncounted: Sequence[int], alone: Sequence[int], counted: Sequence[int]) -> float:
    """How much longer the baseline's are than those of its calls that count. A busy machine makes all of them longer;
    what a submission's calls leave behind, only those that come after them, and not those that come after the
    baseline's own (`alone`)."""
    found = longer(uncounted, counted)
    return min(found, longer(alone, counted)) if alone else found


def _usual(counted: Sequence[int]) -> float:
    """Some inputs may take longer than most, among calls of both kinds."""
    return max(statistics.median(counted), statistics.fmean(counted))


class Debts:
    """What is owed in one phase, by launch, for each case of each runner."""

    def __init__(self) -> None:
        self._shares: dict[tuple[int, int], dict[int, Share]] = {}

    def add(self, rival: int, index: int, launch: int, share: Share) -> None:
        """This launch owes so much for each call."""
        self._shares.setdefault((rival, index), {})[launch] = share

    def of(self, rival: int, index: int) -> int:
        """What half of the launches or more owe."""
        found = self._shares.get((rival, index), {0: Share()})
        return round(statistics.median_low(one.owed for one in found.values()))

    def charge(self, phase: PhaseName, samples: Iterable[LaunchSamples]) -> bool:
        """Add it to each call of these samples of this phase; whether the submission itself owes anything."""
        owes = False
        for one in samples:
            if one.phase != phase:
                continue
            owed, calls = self.of(one.rival, one.index), one.own.calls_ns
            share = self._shares.get((one.rival, one.index), {}).get(one.launch, Share())
            calls[:] = [ns + owed for ns in calls]
            _put_into_the_longest(calls, share.seen - owed)
            if one.baseline is not None:
                _put_into_the_longest(one.baseline.calls_ns, share.beside)
            owes = owes or (owed > 0 and one.rival == 0)
        return owes


def _put_into_the_longest(calls: list[int], each_ns: float) -> None:
    if calls and each_ns > 0:
        calls[calls.index(max(calls))] += round(each_ns * len(calls))
