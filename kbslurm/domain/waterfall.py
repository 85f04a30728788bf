"""Where a run's time went: accept → queue → launch → start → run → collect → score, by the stamps of its rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

StageName = Literal["queue", "launch", "start", "run", "collect", "score"]


@dataclass(frozen=True, kw_only=True)
class Stamps:
    """What the rows say of one run and its winning (or latest) attempt. None: not yet, or nobody saw it.

    `claimed_at`: the attempt's row was committed. `submitted_at`: its handle was. `harness_…_at` are by the node's
    clock. `collected_at`: the report was read; where nobody wrote that down it is the moment of the verdict.
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
    """One step: when it ended, how long it took. `skewed`: another machine's clock says it took less than nothing."""

    name: StageName
    ended_at: datetime
    took_s: float
    skewed: bool = False


def waterfall(stamps: Stamps) -> list[Stage]:
    """The steps that have ended, in order. A step that nobody saw ends with the next one that somebody did."""
    steps: Sequence[tuple[StageName, datetime | None]] = (
        ("queue", stamps.claimed_at),
        ("launch", stamps.submitted_at),
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
