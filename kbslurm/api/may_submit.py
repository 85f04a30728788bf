"""What somebody is told before they submit: why `accept` would refuse it, and what is left of their limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from kbslurm.domain import policy
from kbslurm.domain.gpu_budgets import HOUR_S
from kbslurm.domain.intake import check_may_submit
from kbslurm.domain.policy import LimitsAndUse
from kbslurm.errors import NotAccepting, QuotaSpent, Refused
from kbslurm_eval.shared.wire import Mode

if TYPE_CHECKING:
    from kbslurm.domain.gpu_budgets import Held
    from kbslurm.domain.intake import Admission
    from kbslurm.domain.run import PersonId
    from kbslurm.store.postgres import PostgresStore

MODES: tuple[Mode, ...] = ("leaderboard", "test")  # one of each category
CALLED = {"leaderboard": "Ranked submissions", "test": "Tests, benchmarks and profiles"}


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A limit that holds for somebody: what it counts, how much is used, of how much."""

    what: str
    used: float
    most: float
    unit: str


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """`refused`: nothing would be accepted now, and why; `for_good`: waiting won't change that. `spent`: what else
    would be refused, by category. `deadline_at`: when it closes for this person."""

    refused: Refused | None
    for_good: bool
    spent: dict[Mode, QuotaSpent]
    limits: tuple[Limit, ...]
    deadline_at: datetime | None


def outlook(store: PostgresStore, person: PersonId, board: str, now: datetime) -> Outlook:
    """As `accept` would decide now, for this person on this board."""
    admission = store.intake.admission(person, board)
    refused = _refusal(admission, now)
    uses = {mode: store.intake.use(admission, mode, now) for mode in MODES} if refused is None else {}
    spent: dict[Mode, QuotaSpent] = {}
    for mode, use in uses.items():
        try:
            policy.check(admission.board, mode, use, now, staff=admission.by_staff)
        except QuotaSpent as error:
            spent[mode] = error
    return Outlook(
        refused=refused,
        for_good=refused is not None and not isinstance(refused, NotAccepting),
        spent=spent,
        limits=() if admission.by_staff else tuple(_limits(uses, now)),
        deadline_at=admission.deadline_at,
    )


def _refusal(admission: Admission, now: datetime) -> Refused | None:
    try:
        check_may_submit(admission, now)
    except Refused as error:
        return error
    return None


def _limits(uses: dict[Mode, LimitsAndUse], now: datetime) -> Iterator[Limit]:
    for mode, use in uses.items():
        if use.most_per_hour is not None:
            recent = sum(at > now - policy.WINDOW for at in use.recent_at)
            yield Limit(what=f"{CALLED[mode]}, within an hour", used=recent, most=use.most_per_hour, unit="")
    for use in list(uses.values())[:1]:
        if use.quota_gpu_s is not None:
            yield Limit(what="GPU time, within a day", used=use.used_gpu_s, most=use.quota_gpu_s, unit="s")
        yield from (_of_budget(held) for held in use.budgets if _is_own(held, now))


def _is_own(held: Held, now: datetime) -> bool:
    """What a section or a course has used is its assistants' to know."""
    return held.budget.scope == "person" and held.budget.holds(now)


def _of_budget(held: Held) -> Limit:
    budget = held.budget
    on = f" on {budget.gpu}" if budget.gpu else ""
    what = f"GPU-hours in course {budget.course}{on}, with what open runs may use"
    return Limit(what=what, used=(held.used_s + held.open_s) / HOUR_S, most=budget.gpu_s / HOUR_S, unit="h")
