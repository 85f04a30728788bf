"""Whether a place is to be trusted with runs: closed, open, or half-open with one run to try it. Pure.

A place fails when its controller doesn't answer several times in a row, when launches come to nothing or stay unclear
as often, or when runs of several people end there without a fault of their own and none ends well. Then it is left
alone for a while, longer each time; after that one run is let in. What comes of it closes the breaker or opens it anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

FAILURES = 3
PEOPLE = 3  # whose runs must have failed: no one person takes a place away from everybody
FIRST_S = 30.0
LONGEST_S = 600.0

Cause = Literal["calls", "runs"]


class State(StrEnum):
    """Closed: runs go there. Open: none does. Half-open: one at a time, to see."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, kw_only=True)
class Breaker:
    """`since`: when it came to this state. `times`: how often it opened without having been closed between."""

    state: State = State.CLOSED
    cause: Cause = "calls"
    why: str = ""
    since: datetime | None = None
    try_at: datetime | None = None
    times: int = 0


CLOSED = Breaker()


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """What runs came to at a place lately: how many people's failed through no fault of theirs since the last good one,
    and when the last of either kind ended."""

    people: int = 0
    bad_at: datetime | None = None
    good_at: datetime | None = None


def opened(breaker: Breaker, cause: Cause, why: str, now: datetime, *, first_s: float = FIRST_S) -> Breaker:
    """Leave it alone from now on, twice as long as the time before. One that is open already stays as it is."""
    if breaker.state is State.OPEN:
        return replace(breaker, why=why, cause=cause)
    times = breaker.times + 1
    wait_s = min(LONGEST_S, first_s * 2.0 ** min(30, times - 1))
    return Breaker(
        state=State.OPEN, cause=cause, why=why, since=now, try_at=now + timedelta(seconds=wait_s), times=times
    )


def failed(breaker: Breaker, in_a_row: int, why: str, now: datetime, *, first_s: float = FIRST_S) -> Breaker:
    """After a call or a launch that came to nothing, the so-manieth in a row."""
    if breaker.state is State.HALF_OPEN or in_a_row >= FAILURES:
        return opened(breaker, "calls", why, now, first_s=first_s)
    return breaker


def answered(breaker: Breaker, now: datetime) -> Breaker:
    """After it answered again where it hadn't: it may be tried at once. That alone doesn't close it."""
    if breaker.state is State.OPEN and breaker.cause == "calls":
        return replace(breaker, try_at=now)
    return breaker


def launched(breaker: Breaker) -> Breaker:
    """After it took a run: closed, unless what runs came to was the trouble."""
    return CLOSED if breaker.state is not State.CLOSED and breaker.cause == "calls" else breaker


def looked(breaker: Breaker, outcomes: Outcomes, now: datetime, *, first_s: float = FIRST_S) -> Breaker:
    """After a look at what runs came to there, and at the clock."""
    since = breaker.since
    if breaker.state is not State.CLOSED and since is not None and _after(outcomes.good_at, since):
        return CLOSED
    if breaker.state is State.HALF_OPEN and since is not None and _after(outcomes.bad_at, since):
        return opened(breaker, "runs", "the run that tried it failed through no fault of its own", now, first_s=first_s)
    if breaker.state is State.CLOSED and outcomes.people >= PEOPLE:
        why = f"runs of {outcomes.people} people failed there through no fault of theirs, and none ended well since"
        return opened(breaker, "runs", why, now, first_s=first_s)
    if breaker.state is State.OPEN and (breaker.try_at is None or now >= breaker.try_at):
        return replace(breaker, state=State.HALF_OPEN, since=now, try_at=None)
    return breaker


def _after(moment: datetime | None, since: datetime) -> bool:
    return moment is not None and moment >= since


def told(breaker: Breaker) -> dict[str, Any]:
    """As it is kept, and shown."""
    return {
        "state": breaker.state.value,
        "cause": breaker.cause,
        "why": breaker.why,
        "since": None if breaker.since is None else breaker.since.isoformat(),
        "try_at": None if breaker.try_at is None else breaker.try_at.isoformat(),
        "times": breaker.times,
    }


def kept(said: Mapping[str, Any]) -> Breaker:
    """The same, read again. What isn't one is closed: then it is found out anew."""
    try:
        return Breaker(
            state=State(said["state"]),
            cause="runs" if said["cause"] == "runs" else "calls",
            why=str(said["why"]),
            since=None if said["since"] is None else datetime.fromisoformat(said["since"]),
            try_at=None if said["try_at"] is None else datetime.fromisoformat(said["try_at"]),
            times=int(said["times"]),
        )
    except (KeyError, TypeError, ValueError):
        return CLOSED
