"""How often a site's scheduler is called: never more than its admin allows, less if it is slow or silent."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kbslurm.backends.slurm.call_budget import CallBudget
from kbslurm.domain.site import Poll
from kbslurm.ports import PaceReport

SLOWEST_FACTOR = 8.0
LONGEST_SILENCE_S = 60.0


class CallPace:
    """A minimum interval between polls, and a call budget. A slow answer doubles the interval, a quick one halves
    it."""

    def __init__(self, poll: Poll, now: Callable[[], float], budget: CallBudget | None = None) -> None:
        self._poll, self._now = poll, now
        self._budget = budget or CallBudget(poll.calls_per_minute, now)
        self._lock = threading.Lock()
        self._factor = 1.0
        self._failures, self._why = 0, ""
        self._looked_at = self._failed_at = float("-inf")
        self._calls = 0

    def may_look(self) -> bool:
        """Whether a poll is due and within the budget. Returns True once, then the interval restarts."""
        with self._lock:
            now = self._now()
            if now < self._looked_at + self._interval_s() or self._budget.left() < 1:
                return False
            self._looked_at = now
            return True

    def has_room(self, calls: int = 1) -> bool:
        """Whether the budget has room for this many calls. The last one is reserved for polling open attempts."""
        return self._budget.has_room(calls)

    def is_resting(self) -> bool:
        """Whether the controller failed to answer just now: callers that can wait should, to avoid piling up
        timeouts."""
        with self._lock:
            return self._failures > 0 and self._now() < self._failed_at + self._interval_s()

    def called(self, took_s: float, *, failed: bool = False, why: str = "") -> None:
        """Record one call of any command: it uses budget, and its outcome sets the pace. `why` it failed."""
        with self._lock:
            now = self._now()
            self._calls += 1
            self._budget.spend()
            self._failures = self._failures + 1 if failed else 0
            self._failed_at, self._why = (now, why) if failed else (self._failed_at, "")
            if took_s > self._poll.slow_s:
                self._factor = min(SLOWEST_FACTOR, self._factor * 2)
            elif not failed:
                self._factor = max(1.0, self._factor / 2)

    def report(self) -> PaceReport:
        """Its state."""
        with self._lock:
            return PaceReport(
                calls=self._calls,
                interval_s=self._interval_s(),
                budget_left=max(0.0, self._budget.left()),
                failing=self._failures,
                slow=self._factor > 1,
                why=self._why,
            )

    def _interval_s(self) -> float:
        usual = self._poll.min_interval_s * self._factor
        if not self._failures:
            return usual
        return float(max(usual, min(LONGEST_SILENCE_S, usual * 2 ** min(self._failures, 6))))
