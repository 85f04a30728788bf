"""How often the daemon does what, and how long it leaves alone what failed."""

from __future__ import annotations

from dataclasses import dataclass

from kbslurm.domain import breaker as breakers


def back_off_s(times: int, *, first_s: float, most_s: float) -> float:
    """How long to leave something alone after so many failures in a row: twice as long each time, up to `most_s`."""
    return float(min(most_s, first_s * 2.0 ** min(30, max(0, times - 1))))


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The daemon's intervals.

    `idle_s`: a look at the rows at least this often, should every message be lost. `late_s`: how often we look for
    reports of attempts that were given up within the last hour. `keep_artifacts_s`: how long the files of a profile are
    kept. `breaker_s`: how long a place that fails is left alone at first. `shadow_s`: how often we look whether a run
    that ranked is to be measured elsewhere, too.
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
