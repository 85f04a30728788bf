"""Budgets in GPU-hours at home, of a course, its sections and its people. Pure; the store says what is used.

What counts is the GPU time of attempts at home, as `kbslurm usage` counts it, warm ones included; each in the moment in
which it was opened. Runs elsewhere cost money and have a budget of their own (`placement.Budget`). An open run counts
at the most that it may use until it ends, and a queued one as if it ran at home until it goes elsewhere; what staff or
the service have ordered counts when it has ended.

A submission is accepted while that is below the budget, and what was accepted runs to its end. So a budget is overrun
at most by the runs of the last submission that was accepted, and by what the service orders itself: attempts again
after a failure of the place, second measurements, finals, rejudges.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from kbslurm.domain import contest
from kbslurm.domain.run import PersonId
from kbslurm.errors import Invalid, QuotaSpent

Scope = Literal["course", "section", "person"]
Each = Literal["section", "person"]
State = Literal["ok", "low", "spent"]

MOST_GPU_HOURS = 1_000_000
LOW = 0.8
HOUR_S = 3_600.0


@dataclass(frozen=True, kw_only=True)
class GpuBudget:
    """How many GPU-seconds a course, a section or a person may use at home. With neither `section` (in lower case) nor
    `person_id`, those of its scope have as much each, unless one has a budget of its own. `gpu` empty: on all types."""

    course: str
    scope: Scope
    gpu_s: float
    section: str = ""
    person_id: PersonId | None = None
    person: str | None = None
    gpu: str = ""
    begins_at: datetime | None = None
    ends_at: datetime | None = None

    @property
    def is_for_each(self) -> bool:
        """Whether every section or person has as much."""
        return self.scope != "course" and not self.section and self.person_id is None

    def holds(self, now: datetime) -> bool:
        """Whether it applies now."""
        begun = self.begins_at is None or self.begins_at <= now
        return begun and (self.ends_at is None or now < self.ends_at)

    @property
    def whose(self) -> str:
        """Whose it is, in words."""
        named = self.person if self.scope == "person" else f"section {self.section}"
        who = self.course if self.scope == "course" else f"each {self.scope}" if self.is_for_each else named
        return f"{who} on {self.gpu}" if self.gpu else f"{who}"


@dataclass(frozen=True, kw_only=True)
class Held:
    """What one course, section or person has used of a budget: by attempts that ended, and by open runs at most. `name`
    is the section's or the person's; `used_at`: when an attempt last ended."""

    budget: GpuBudget
    name: str = ""
    used_s: float = 0.0
    open_s: float = 0.0
    money: float = 0.0
    used_at: datetime | None = None

    @property
    def left_s(self) -> float:
        """What is left, with open runs at their maximum."""
        return max(0.0, self.budget.gpu_s - self.used_s - self.open_s)

    @property
    def share(self) -> float:
        """Which fraction is used, without open runs."""
        return self.used_s / self.budget.gpu_s if self.budget.gpu_s else 1.0

    @property
    def state(self) -> State:
        """`spent`: nothing is accepted now; `low`: hosts should look."""
        if self.used_s + self.open_s >= self.budget.gpu_s:
            return "spent"
        return "low" if self.share >= LOW else "ok"


def hours(value: float) -> float:
    """Checked GPU-hours, or Invalid."""
    if not (math.isfinite(value) and 0 <= value <= MOST_GPU_HOURS):
        raise Invalid(f"a budget must be between 0 and {MOST_GPU_HOURS:,} GPU-hours, not {value:g}")
    return value


def moment(text: str, what: Literal["from", "until"]) -> datetime:
    """When a budget begins or ends, in UTC unless it says otherwise. A date alone is all of that day."""
    written = text.strip()
    if what == "from" and len(written) == len("2026-10-01"):
        written = f"{written} 00:00"
    try:
        return contest.parsed_deadline(written)
    except Invalid as error:
        raise Invalid(f"{contest.shown(text)} isn't a valid time for --{what}", hint=error.hint) from None


def check_order(begins_at: datetime | None, ends_at: datetime | None, now: datetime) -> None:
    """Refuse a budget that never applies, or no longer does."""
    if begins_at is not None and ends_at is not None and begins_at >= ends_at:
        raise Invalid(
            f"the budget would end at {ends_at:%Y-%m-%d %H:%M} UTC, before it begins at {begins_at:%Y-%m-%d %H:%M} UTC"
        )
    if ends_at is not None and ends_at <= now:
        raise Invalid(f"the budget's end, {ends_at:%Y-%m-%d %H:%M} UTC, has passed already")


def check(held: Sequence[Held], now: datetime) -> None:
    """Refuse a submission where a budget is used up. What waits or runs goes on."""
    for one in held:
        if one.state == "spent" and one.budget.holds(now):
            raise _refusal(one)


def _refusal(one: Held) -> QuotaSpent:
    budget = one.budget
    whose = {
        "course": f"GPU-hours of course {budget.course}",
        "section": f"GPU-hours of section {one.name} of course {budget.course}",
        "person": f"your GPU-hours in course {budget.course}",
    }[budget.scope]
    on = f" on {budget.gpu}" if budget.gpu else ""
    asks = "ask an owner of the course or a host for more."
    if one.used_s < budget.gpu_s:
        whose += f"{on}, counting open runs with {_hours(one.open_s)} at most"
        resets_at, hint = None, f"Try again when some of the open runs have ended, or {asks}"
    elif budget.ends_at is not None:
        whose, resets_at = f"{whose}{on}", budget.ends_at
        hint = f"The budget ends at {budget.ends_at:%Y-%m-%d %H:%M} UTC; before that {asks}"
    else:
        whose, resets_at, hint = f"{whose}{on}", None, f"{asks[0].upper()}{asks[1:]}"
    used, limit = (float(_figure(amount_s / HOUR_S)) for amount_s in (one.used_s + one.open_s, budget.gpu_s))
    return QuotaSpent(whose, used=used, limit=limit, resets_at=resets_at, hint=hint)


def told(
    course: str, budgets: Sequence[GpuBudget], held: Sequence[Held], now: datetime, *, currency: str
) -> Mapping[str, Any]:
    """A course's budgets and what is used of them, as JSON."""
    return {
        "course": course,
        "currency": currency,
        "budgets": [
            {
                "scope": one.scope,
                "section": one.section or None,
                "person_id": one.person_id,
                "person": one.person,
                "each": one.is_for_each,
                "gpu": one.gpu or None,
                "gpu_hours": one.gpu_s / HOUR_S,
                "begins": None if one.begins_at is None else one.begins_at.isoformat(),
                "until": None if one.ends_at is None else one.ends_at.isoformat(),
                "holds_now": one.holds(now),
                "in_words": in_words(one),
                "held": [_told(row) for row in held if row.budget == one],
            }
            for one in budgets
        ],
    }


def _told(row: Held) -> dict[str, Any]:
    return {
        "name": row.name or row.budget.course,
        "used_gpu_hours": row.used_s / HOUR_S,
        "open_gpu_hours": row.open_s / HOUR_S,
        "left_gpu_hours": row.left_s / HOUR_S,
        "percent": 100 * row.share,
        "cost": row.money,
        "state": row.state,
    }


def in_words(budget: GpuBudget) -> str:
    """`each person on H100: 2 GPU-hours until 2026-12-24 23:59 UTC`."""
    begins = "" if budget.begins_at is None else f" from {budget.begins_at:%Y-%m-%d %H:%M} UTC"
    ends = "" if budget.ends_at is None else f" until {budget.ends_at:%Y-%m-%d %H:%M} UTC"
    return f"{budget.whose}: {_hours(budget.gpu_s)}{begins}{ends}"


def notices(held: Sequence[Held], now: datetime) -> list[tuple[str, datetime]]:
    """What hosts should look at, and since when: budgets of which little or nothing is left. People with as much each
    are one line."""
    found: list[tuple[str, datetime]] = []
    many: dict[GpuBudget, list[Held]] = {}
    for row in held:
        if row.state == "ok" or not row.budget.holds(now):
            continue
        if row.budget.scope == "person" and row.budget.is_for_each:
            many.setdefault(row.budget, []).append(row)
            continue
        budget = row.budget
        named = {"course": "", "section": f"section {row.name} of ", "person": f"{row.name} in "}[budget.scope]
        on = f" on {budget.gpu}" if budget.gpu else ""
        still = f", and open runs may use {_hours(row.open_s)}" if row.open_s else ""
        text = f"{named}course {budget.course} has used {100 * row.share:.0f} % of {_hours(budget.gpu_s)}{on}{still}"
        found.append((f"{text}{': nothing more is accepted' if row.state == 'spent' else ''}", row.used_at or now))
    for budget, rows in many.items():
        spent = sum(row.state == "spent" for row in rows)
        have = "1 person" if len(rows) == 1 else f"{len(rows)} people"
        ones = "has" if len(rows) == 1 else "have"
        on = f" on {budget.gpu}" if budget.gpu else ""
        none = f"; nothing more is accepted of {spent}" if spent else ""
        text = (
            f"{have} of course {budget.course} {ones} little or nothing left of {_hours(budget.gpu_s)} each{on}{none}"
        )
        found.append((text, min(row.used_at or now for row in rows)))
    return found


def _hours(amount_s: float) -> str:
    value = amount_s / HOUR_S
    return "1 GPU-hour" if value == 1 else f"{_figure(value)} GPU-hours"


def _figure(value: float) -> str:
    """Three significant digits, and the whole of large numbers."""
    return f"{value:.3g}" if value < 1_000 else f"{value:.0f}"
