"""Late submissions: until when a board takes them, and what being late costs in grades. Pure.

A submission is late if it came after the author's own deadline: the board's, or a later one that a host gave to the
author or their section. It counts for grades, less a penalty, and never in the standings. Being late isn't stored: it
follows from the deadlines as they are now, so an extension also helps those who submitted before they got it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args

from kbslurm.domain.contest import at_home
from kbslurm.errors import Invalid

Unit = Literal["hour", "day"]

SECONDS: dict[Unit, int] = {"hour": 3_600, "day": 86_400}
MOST_GRACE_S = 30 * 86_400
MOST_SLIP_DAYS = 365
_SPAN = re.compile(r"(\d{1,6})\s*(s|m|min|h|d)", re.ASCII | re.IGNORECASE)
_SPAN_S = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, kw_only=True)
class LatePolicy:
    """What a board does about late submissions. `until`: the last moment that it takes any; None: it takes none.

    Whoever is late by at most `grace_s` loses nothing. Beyond that, `percent` of the points are lost for every `per`
    begun since the deadline, after as many whole days as a person has `slip_days` left.
    """

    until: datetime | None = None
    grace_s: float = 0.0
    percent: float = 0.0
    per: Unit = "day"
    slip_days: int = 0


@dataclass(frozen=True, kw_only=True)
class Penalty:
    """What being late by `late_s` costs: `percent` of the points, after `slip_days` of the person's were used up."""

    late_s: float
    percent: float = 0.0
    slip_days: int = 0
    units: int = 0
    in_grace: bool = False


def late_s(at: datetime, deadline: datetime | None) -> float:
    """By how many seconds something at that time is late; 0 if it is in time."""
    return 0.0 if deadline is None else max(0.0, (at - deadline).total_seconds())


def accepted_until(deadline: datetime | None, late_until: datetime | None) -> datetime | None:
    """The last moment for a person with this deadline; None: there is none."""
    if deadline is None or late_until is None:
        return deadline
    return max(deadline, late_until)


def penalty(late_by_s: float, policy: LatePolicy) -> Penalty:
    """What being late by so much costs. Never more than all points, and never less for being later."""
    if late_by_s <= 0:
        return Penalty(late_s=0.0)
    if late_by_s <= policy.grace_s:
        return Penalty(late_s=late_by_s, in_grace=True)
    slipped = min(policy.slip_days, math.ceil(late_by_s / SECONDS["day"]))
    rest_s = max(0.0, late_by_s - slipped * SECONDS["day"])
    units = math.ceil(rest_s / SECONDS[policy.per])
    return Penalty(late_s=late_by_s, percent=min(100.0, units * policy.percent), slip_days=slipped, units=units)


def checked(policy: LatePolicy, deadline: datetime | None, zone: str) -> LatePolicy:
    """The policy, or Invalid with what is wrong about it on a board with this deadline."""
    if policy.until is not None and deadline is None:
        raise Invalid(
            "a board without a deadline has no late submissions",
            hint="Set the deadline first: kbslurm board edit NAME --deadline …",
        )
    if policy.until is not None and deadline is not None and policy.until <= deadline:
        raise Invalid(
            f"late submissions can't end at {at_home(policy.until, zone)}, before the deadline"
            f" {at_home(deadline, zone)}",
            hint="Pick a time after the deadline.",
        )
    if not 0 <= policy.grace_s <= MOST_GRACE_S:
        raise Invalid(f"the grace period must be between 0 and {MOST_GRACE_S // 86_400} days")
    if not 0 <= policy.percent <= 100:
        raise Invalid(f"the late penalty must be between 0 and 100 per cent, not {policy.percent:g}")
    if policy.per not in get_args(Unit):
        raise Invalid(f"{policy.per!r} isn't a unit of the late penalty", hint="Choose hour or day.")
    if not 0 <= policy.slip_days <= MOST_SLIP_DAYS:
        raise Invalid(f"the slip days must be between 0 and {MOST_SLIP_DAYS}, not {policy.slip_days}")
    return policy


def parsed_span(text: str) -> float:
    """`90s`, `15m`, `2h` or `1d` in seconds, or Invalid."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise Invalid(f"{text[:40]!r} isn't a length of time", hint="Write it like 15m, 2h or 1d.")
    return float(int(found[1]) * _SPAN_S[found[2].lower()])


def span_text(seconds: float) -> str:
    """A length of time as a person says it: `2 d 3 h`, `1 h 5 min`, `40 s`."""
    whole = timedelta(seconds=max(1, round(seconds)))
    days, rest = whole.days, whole.seconds
    hours, minutes, left = rest // 3_600, rest % 3_600 // 60, rest % 60
    shown = [(days, "d"), (hours, "h"), (minutes, "min"), (left, "s")]
    first = next(n for n, (count, _) in enumerate(shown) if count)
    return " ".join(f"{count} {unit}" for count, unit in shown[first : first + 2] if count)


def in_words(policy: LatePolicy, zone: str) -> str:
    """The policy in one sentence, without a full stop."""
    if policy.until is None:
        return "no late submissions"
    parts = [f"late submissions until {at_home(policy.until, zone)}"]
    if policy.grace_s:
        parts.append(f"the first {span_text(policy.grace_s)} cost nothing")
    if policy.slip_days:
        parts.append(f"{policy.slip_days} slip day{'' if policy.slip_days == 1 else 's'} per person")
    if policy.percent:
        parts.append(f"{policy.percent:g} % of the points lost per {policy.per} begun")
    return ", ".join(parts)


def still_late(policy: LatePolicy, deadline: datetime | None, now: datetime) -> bool:
    """Whether the board's own deadline is over and it still takes late submissions."""
    return deadline is not None and policy.until is not None and deadline < now <= policy.until


PRACTICE = "practice: it came after the end, and counts neither in the standings nor for grades"


def remark(late_by_s: float) -> str | None:
    """What a late submission is told; None if it is in time."""
    if late_by_s <= 0:
        return None
    return f"late by {span_text(late_by_s)}: it counts for grades, not in the standings"
