"""Where a run's time went: one bar per stage, each beginning where the one before it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbslurm.domain.amounts import span
from kbslurm.domain.waterfall import Stage

STAGES = {
    "queue": "waited in the queue",
    "launch": "handed to the cluster",
    "start": "waited for the job to start",
    "run": "judged and measured",
    "collect": "waited for the report to be read",
    "score": "scored",
}
LEAST = 0.4  # percent: a bar that can still be seen


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A stage: where it is drawn, in percent, and what is said of it."""

    name: str
    means: str
    x: float
    width: float
    took_s: float
    took: str
    skewed: bool


@dataclass(frozen=True, kw_only=True)
class Waterfall:
    """All stages, and how long they took together."""

    bars: tuple[Bar, ...]
    whole: str


def waterfall(stages: Sequence[Stage]) -> Waterfall:
    """The chart of these stages; very short ones still show."""
    whole_s = sum(stage.took_s for stage in stages)
    found, at = [], 0.0
    for stage in stages:
        width = 100 * stage.took_s / whole_s if whole_s else 0.0
        drawn = min(100.0, max(LEAST, width))
        found.append(
            Bar(
                name=stage.name,
                means=STAGES[stage.name],
                x=round(min(at, 100 - drawn), 2),
                width=round(drawn, 2),
                took_s=stage.took_s,
                took=span(stage.took_s),
                skewed=stage.skewed,
            )
        )
        at += width
    return Waterfall(bars=tuple(found), whole=span(whole_s))
