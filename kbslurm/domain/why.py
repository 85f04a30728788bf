"""Explains a run's state in sentences: what it is waiting for, or where it ran and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbslurm.domain import drains, waiting
from kbslurm.domain.amounts import counted, span
from kbslurm.domain.run import AttemptState

HELD = "it is on hold until its board's reference times have been measured on this GPU type"
HELD_SECOND = "it is waiting for its second measurement; a person's runs are measured one after the other"


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One attempt and why it went there."""

    number: int
    backend: str
    state: str
    ending: str | None
    reason: str
    why_here: str
    gpu_class: str
    ranks: bool
    waits: str
    wanted_back: bool
    gpu_s: float
    money: float
    warm: bool = False


@dataclass(frozen=True, kw_only=True)
class Told:
    """The facts about a run from the database and the leading daemon. `leader` is what the daemon published when it
    last renewed its lease, None if none is leading; `ahead` is how many runs are queued before it, `open_at` how many
    are open, by place. `spent` is this month's total spending, counting open runs at their maximum."""

    run: int
    submission: int
    board: str
    team: str | None
    gpu: str
    state: str
    mode: str
    by_staff: bool
    gpus: int
    most_gpu_s: float
    held: bool
    second: bool
    pinned: str | None
    waited_s: float
    ahead: int
    verdict: str | None
    ranked: bool | None
    reason: str
    tries: Sequence[Tried]
    open_at: Mapping[str, int]
    leader: Mapping[str, Any] | None
    cold: bool = False
    spent: float = 0.0
    spent_of_board: float = 0.0
    spent_of_team: float = 0.0


def sentences(told: Told, *, money: bool = True) -> list[str]:
    """The full explanation, most important first. `money`: with amounts, which are for hosts."""
    found = list(_waits(told, money)) if told.state == "queued" else []
    found += [_tried(one, last=one is told.tries[-1], told=told) for one in reversed(told.tries)]
    if told.state == "cancelled":
        found.insert(0, "it was cancelled, so it has no verdict")
    elif told.verdict is not None:
        why = f": {told.reason}" if told.reason else ""
        found.insert(0, f"it has its verdict, {told.verdict}{why}")
    return found


def _waits(told: Told, money: bool) -> list[str]:
    since = f"it has waited {span(told.waited_s)}"
    if told.held:
        return [HELD_SECOND if told.second else HELD, since]
    if told.leader is None:
        return ["no daemon is leading: nothing starts until one is", since]
    found = [f"{since}; {_ahead(told)} ahead of it" if told.ahead else f"{since}, and is next"]
    if told.pinned is not None:
        found.append(f"it is pinned to {told.pinned} and goes nowhere else")
    places = told.leader.get("places", {})
    having = {name: place for name, place in places.items() if told.gpu in place.get("slots", {})}
    if not having:
        found.append(f"no place here has {told.gpu}")
    refused = {one.backend: one.reason for one in told.tries if one.ending == "refused"}
    for name, place in having.items():
        found.append(f"{name}: {refused_by(name, place, told, refused, money=money)}")
        found += [f"{name}: {said}" for said in warm_workers(name, told)]
    overflow = told.leader.get("overflow", {})
    if any(place.get("role") == "overflow" for place in having.values()):
        found.append(
            f"overflow ({overflow.get('rule', 'never')}): {overflow.get('gpus', {}).get(told.gpu, 'no information')}"
        )
    return found


def warm_workers(name: str, told: Told) -> list[str]:
    """What this place's warm workers mean for a waiting run, if it may have any."""
    for row in (told.leader or {}).get("warm", ()):
        if (row["backend"], row["gpu"]) != (name, told.gpu) or not row.get("most"):
            continue
        if told.cold or any(one.warm for one in told.tries) or told.gpus > 1:
            lost = "its last attempt was in one" if any(one.warm for one in told.tries) else ""
            wide = "it needs several GPUs" if told.gpus > 1 else ""
            own = "a job of its own is wanted for it"
            return [f"it doesn't go into a warm worker: {wide or lost or own}"]
        if not row["open"]:
            return [f"no warm worker: {row['why']}"] if row.get("why") else []
        many = counted(row["open"], "warm worker")
        by_itself = f"; a job of its own starts in about {span(row['cold_s'])}" if row.get("cold_s") else ""
        if told.ahead < row.get("kept", 0):
            return [f"{many}, and it is expected to start sooner in one than by itself{by_itself}"]
        return [f"{many}, and it isn't expected to start sooner in one{by_itself}"]
    return []


def refused_by(
    name: str, place: Mapping[str, Any], told: Told, refused: Mapping[str, str], *, money: bool = True
) -> str:
    """Why this place doesn't take it now, or that it can."""
    overflow = (told.leader or {}).get("overflow", {})
    breaker = place.get("breaker", {})
    drain = place.get("draining", {}).get(told.gpu)
    classes, boards = overflow.get("classes", {}), overflow.get("boards", {})
    widest = place.get("widest", {}).get(told.gpu)
    if told.pinned is not None and told.pinned != name:
        return "not the place that it is pinned to"
    if drain is not None:
        return drains.in_words(drain)
    if name in refused:
        return f"it permanently refused it: {refused[name]}"
    if widest is not None and told.gpus > widest:
        return f"a run can have at most {widest} GPUs there, this one needs {told.gpus}"
    if place.get("staff_only") and not told.by_staff:
        return "only staff's submissions run there"
    shut = place.get("role") == "overflow" and told.board in boards and name not in boards[told.board]
    if shut and told.pinned is None:
        return f"the hosts don't let board {told.board} use it"
    here = place.get("classes", {}).get(told.gpu)
    other = told.gpu in classes and here != classes[told.gpu]
    if other and told.mode == "leaderboard" and overflow.get("other_class") == "refuse" and told.pinned is None:
        return f"its GPUs are {here}, the board's are {classes[told.gpu]}: leaderboard runs don't go there"
    if spent := _spent_up(place.get("prices", {}).get(told.gpu, 0.0), told, money):
        return spent
    if breaker.get("state", "closed") != "closed" and overflow.get("rule"):
        word = "is being tested with one run" if breaker["state"] == "half_open" else "gets no runs at the moment"
        return f"{word}: {breaker['why']}"
    if place.get("troubles"):
        return f"it isn't used for a while: {_for_everybody(place, place.get('why'))}"
    if shut := place.get("shut", {}).get(told.gpu):
        return f"it takes no runs for {told.gpu} at the moment: {shut}"
    if (pace := place.get("pace") or {}).get("failing"):
        return f"its scheduler doesn't answer at the moment: {_for_everybody(place, pace.get('why'))}"
    slots, open_now = place["slots"][told.gpu], told.open_at.get(name, 0)
    if open_now >= slots:
        return f"all {slots} slots are in use"
    return f"{slots - open_now} of {slots} slots are free"


def _ahead(told: Told) -> str:
    return f"{counted(told.ahead, 'run')} for {told.gpu} {'is' if told.ahead == 1 else 'are'}"


def _spent_up(price: float, told: Told, money: bool) -> str:
    """The budget without room for its maximum cost there; empty if all have room."""
    overflow = (told.leader or {}).get("overflow", {})
    budget, currency, most = overflow.get("budget", {}), overflow.get("currency", ""), told.most_gpu_s * price
    boards, teams = budget.get("boards", {}), budget.get("teams", {})
    of_team = None if told.team is None else teams.get(told.team, {}).get("month", budget.get("team"))
    bounds = [
        ("this month's budget", budget.get("month"), told.spent),
        (f"board {told.board}'s budget this month", boards.get(told.board, {}).get("month"), told.spent_of_board),
        (f"team {told.team}'s budget this month", of_team, told.spent_of_team),
    ]
    for whose, bound, spent in bounds:
        if price > 0 and bound is not None and spent + most > bound:
            used = (
                f"{spent:.2f} of {bound:.2f} {currency} with open runs at their maximum; this one may cost {most:.2f}"
            )
            return f"{whose} is used up ({used})" if money else f"{whose} is used up"
    return ""


def _for_everybody(place: Mapping[str, Any], why: str | None) -> str:
    """A place's trouble without what only a host can type."""
    lapse = place.get("lapse") or ""
    return (why or "").replace(lapse, waiting.for_everybody(lapse)) if lapse else why or ""


def _tried(one: Tried, *, last: bool, told: Told) -> str:
    why = f", because {one.why_here}" if one.why_here else ""
    text = f"attempt {one.number} went to {one.backend}{why}"
    if not one.ranks and told.mode == "leaderboard":
        text += f"; its GPU there, {one.gpu_class}, isn't of the board's class, so it doesn't rank"
    if one.ending is not None or not last:
        return f"{text}; it ended: {one.ending or one.state}{f' ({one.reason})' if one.reason else ''}"
    if one.wanted_back:
        text += "; it is being withdrawn, to run at home"
    said = waiting.of_attempt(one.state, one.waits, one.reason)
    match one.state:
        case AttemptState.INTENT | AttemptState.AMBIGUOUS:
            return f"{text}; {said or waiting.BEING_SUBMITTED}"
        case _:
            return f"{text}; it is {one.state}{f', {said}' if said else ''}"


def as_told(told: Told, *, money: bool = True) -> dict[str, Any]:
    """As JSON: the facts and the sentences. `money`: with the cost, which is for hosts."""
    return {
        "run": told.run,
        "submission": told.submission,
        "leaderboard": told.board,
        "gpu": told.gpu,
        "state": told.state,
        "verdict": told.verdict,
        "place": told.ahead + 1 if told.state == "queued" and not told.held else None,
        "pinned": told.pinned,
        "why": sentences(told, money=money),
        "attempts": [
            {
                "number": one.number,
                "backend": one.backend,
                "state": one.state,
                "ending": one.ending,
                "why": one.why_here,
                "gpu_class": one.gpu_class,
                "ranks": one.ranks,
                "warm": one.warm,
                "gpu_s": round(one.gpu_s, 3),
                "cost": round(one.money, 6) if money else None,
            }
            for one in told.tries
        ],
        "currency": (told.leader or {}).get("overflow", {}).get("currency", ""),
    }
