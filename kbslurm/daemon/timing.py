"""The daemon's intervals and back-off times."""

from __future__ import annotations

from dataclasses import dataclass

from kbslurm.domain import breaker as breakers


def back_off_s(times: int, *, first_s: float, most_s: float) -> float:
    """The back-off after this many failures in a row: twice as long each time, up to `most_s`."""
    return float(min(most_s, first_s * 2.0 ** min(30, max(0, times - 1))))


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The daemon's intervals.

    `idle_s`: read the database at least this often, in case messages are lost. `late_s`: how often we check for reports
    of attempts given up within the last hour. `keep_artifacts_s`: how long a profile's files are kept. `breaker_s`: how
    long a failing place is first paused. `shadow_s`: how often we check whether a ranked run should be measured
    elsewhere too.
    """

    lease_s: float = 15.0
    idle_s: float = 30.0
    event_wait_s: float = 0.5
    late_s: float = 60.0
    stop_within_s: float = 15.0
    database_back_off_s: float = 0.5
    keep_artifacts_s: float = 14 * 86_400.0
    breaker_s: float = breakers.FIRST_S
    shadow_s: float = 10.0
