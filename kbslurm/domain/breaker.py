"""A circuit breaker per place: closed, open, or half-open with one test run. Pure.

A place fails when its controller repeatedly doesn't answer, when launches repeatedly fail or stay unclear, or when runs
of several people fail there through no fault of their own and none succeeds. Then it gets no runs for a while, longer
each time; after that one run is let in, whose outcome closes the breaker or opens it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

FAILURES = 3
PEOPLE = 3  # people whose runs must have failed: no single person can close a place for everyone
FIRST_S = 30.0
LONGEST_S = 600.0

Cause = Literal["calls", "runs"]


class State(StrEnum):
    """Closed: runs go there. Open: none does. Half-open: one at a time, to test it."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, kw_only=True)
class Breaker:
    """`since`: when it entered this state. `times`: how often it opened without closing in between."""

    state: State = State.CLOSED
    cause: Cause = "calls"
    why: str = ""
    since: datetime | None = None
    try_at: datetime | None = None
    times: int = 0


CLOSED = Breaker()


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Recent outcomes at a place: how many people's runs failed through no fault of theirs since the last success, and
    when the latest of either kind ended."""

    people: int = 0
    bad_at: datetime | None = None
    good_at: datetime | None = None


def opened(breaker: Breaker, cause: Cause, why: str, now: datetime, *, first_s: float = FIRST_S) -> Breaker:
    """Open it now, for twice as long as last time. An open one stays as it is."""
    if breaker.state is State.OPEN:
        return replace(breaker, why=why, cause=cause)
    times = breaker.times + 1
    wait_s = min(LONGEST_S, first_s * 2.0 ** min(30, times - 1))
    return Breaker(
        state=State.OPEN, cause=cause, why=why, since=now, try_at=now + timedelta(seconds=wait_s), times=times
    )


def failed(breaker: Breaker, in_a_row: int, why: str, now: datetime, *, first_s: float = FIRST_S) -> Breaker:
    """After a failed call or launch, with the number of failures in a row."""
    if breaker.state is State.HALF_OPEN or in_a_row >= FAILURES:
        return opened(breaker, "calls", why, now, first_s=first_s)
    return breaker


def answered(breaker: Breaker, now: datetime) -> Breaker:
    """After it answered again: it may be tested immediately. That alone doesn't close the breaker."""
    if breaker.state is State.OPEN and breaker.cause == "calls":
        return replace(breaker, try_at=now)
    return breaker


def launched(breaker: Breaker) -> Breaker:
    """After it accepted a run: closed, unless it opened because of run outcomes."""
    return CLOSED if breaker.state is not State.CLOSED and breaker.cause == "calls" else breaker


def looked(breaker: Breaker, outcomes: Outcomes, now: datetime, *, first_s: float = FIRST_S) -> Breaker:
    """After checking recent outcomes and the clock."""
    since = breaker.since
    if breaker.state is not State.CLOSED and since is not None and _after(outcomes.good_at, since):
        return CLOSED
    if breaker.state is State.HALF_OPEN and since is not None and _after(outcomes.bad_at, since):
        return opened(breaker, "runs", "the test run failed through no fault of its own", now, first_s=first_s)
    if breaker.state is State.CLOSED and outcomes.people >= PEOPLE:
        why = f"runs of {outcomes.people} people failed there through no fault of theirs, and none has succeeded since"
        return opened(breaker, "runs", why, now, first_s=first_s)
    if breaker.state is State.OPEN and (breaker.try_at is None or now >= breaker.try_at):
        return replace(breaker, state=State.HALF_OPEN, since=now, try_at=None)
    return breaker


def _after(moment: datetime | None, since: datetime) -> bool:
    return moment is not None and moment >= since


def told(breaker: Breaker) -> dict[str, Any]:
    """The stored and displayed form."""
    return {
        "state": breaker.state.value,
        "cause": breaker.cause,
        "why": breaker.why,
        "since": None if breaker.since is None else breaker.since.isoformat(),
        "try_at": None if breaker.try_at is None else breaker.try_at.isoformat(),
        "times": breaker.times,
    }


def kept(said: Mapping[str, Any]) -> Breaker:
    """Read the stored form. Invalid data counts as closed; failures will open it again."""
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
