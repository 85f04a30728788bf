"""Where a run's time went: accept → queue → launch → start → run → collect → score, from the timestamps in the
database. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

StageName = Literal["queue", "launch", "start", "run", "collect", "score"]


@dataclass(frozen=True, kw_only=True)
class Stamps:
    """The timestamps of one run and its winning (or latest) attempt. None: not yet, or not observed.

    `claimed_at`: the attempt's row was committed. `submitted_at`: its handle was; None too if that was only after its
    job had started, as when a lost job is found again. `harness_…_at` are by the node's
    clock. `collected_at`: the report was read; if that wasn't recorded, the time of the verdict.
    """

    accepted_at: datetime
    claimed_at: datetime | None = None
    submitted_at: datetime | None = None
    harness_started_at: datetime | None = None
    harness_ended_at: datetime | None = None
    collected_at: datetime | None = None
    scored_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One step: when it ended, how long it took. `skewed`: by another machine's clock it took a negative time."""

    name: StageName
    ended_at: datetime
    took_s: float
    skewed: bool = False


def waterfall(stamps: Stamps) -> list[Stage]:
    """The finished steps, in order. A step that wasn't observed ends with the next one that was."""
    submitted_at, ended_at = stamps.submitted_at, stamps.harness_ended_at
    if submitted_at is not None and ended_at is not None and submitted_at >= ended_at:
        submitted_at = None  # found again after its end
    steps: Sequence[tuple[StageName, datetime | None]] = (
        ("queue", stamps.claimed_at),
        ("launch", submitted_at),
        ("start", stamps.harness_started_at),
        ("run", stamps.harness_ended_at),
        ("collect", stamps.collected_at),
        ("score", stamps.scored_at),
    )
    found: list[Stage] = []
    last = stamps.accepted_at
    for name, at in steps:
        if at is None:
            continue
        took_s = (at - last).total_seconds()
        found.append(Stage(name=name, ended_at=at, took_s=max(0.0, took_s), skewed=took_s < 0))
        last = max(last, at)
    return found


def moment(ns: int | None) -> datetime | None:
    """A node's nanoseconds since the epoch as a moment."""
    return None if ns is None else datetime.fromtimestamp(ns / 1e9, UTC)
