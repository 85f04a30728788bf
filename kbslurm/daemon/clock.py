"""The daemon's clock, and how it notices that the clock was set or the machine slept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

CLOCK_SLIP_S = 5.0
NEVER = datetime.min.replace(tzinfo=UTC)


def went_back(before: datetime, now: datetime) -> bool:
    """Whether the clock was set back between these readings, by more than normal clock adjustment."""
    return now + timedelta(seconds=CLOCK_SLIP_S) < before


def leapt_s(before: datetime, now: datetime, passed_s: float) -> float:
    """How far the clock jumped forward: it was set, or the machine slept. 0 for normal clock adjustment."""
    more_s = (now - before).total_seconds() - passed_s
    return more_s if before > NEVER and more_s > CLOCK_SLIP_S else 0.0


class WallClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)
