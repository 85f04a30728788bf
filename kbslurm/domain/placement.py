"""Where a run goes if there are several places: the cluster at home, or others that cost money. Pure.

Home comes first. The others are for overflow: they are offered by the hosts' rule (never, when home is down, when the
wait would be too long), for boards that may use them, within the month's budget. Their GPUs must be of the board's
class, or runs there don't rank, or don't go there at all: one leaderboard never mixes classes.

The caller passes the current facts; the answer is slots with their conditions, and for each GPU type a sentence on why
overflow is used or not. The store's claim enforces each slot's conditions and the budget.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from kbslurm.domain import contest, eta
from kbslurm.domain.amounts import span
from kbslurm.domain.breaker import Breaker, State
from kbslurm.domain.drift import Ranked, coin
from kbslurm.domain.eta import Service
from kbslurm.domain.run import AttemptState, Leaderboard, OpenAttempt, Slot
from kbslurm.errors import Invalid

When = Literal["never", "when_down", "when_wait_over"]
PlaceRole = Literal["home", "overflow"]
OtherClass = Literal["refuse", "unranked"]
Source = Literal["squeue --start", "sbatch --test-only"]

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)\Z")
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
BUDGET_SPENT = "this month's budget for other places is used up: it waits for the cluster"
TEAM_SPENT = "its team's budget for other places this month is used up: it waits for the cluster"
BOARD_SPENT = "its board's budget for other places this month is used up: it waits for the cluster"
HAD_ROOM = "had a free slot"
_RULES = 'Write overflow = "never", "when_down", or { when_wait_over = "10m" }.'
_MONTH = re.compile(r"(\d{4})-(\d{2})\Z")


@dataclass(frozen=True, kw_only=True)
class Overflow:
    """When places other than the cluster take runs. A wait longer than `after_s` is too long."""

    when: When = "never"
    after_s: float = 0.0

    def __str__(self) -> str:
        return self.when if self.when != "when_wait_over" else f"when_wait_over {span(self.after_s)}"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The monthly budget (UTC): in total, per board, for each team, for a named team; None or not named: no limit. A
    team's limit doesn't apply to people without a team."""

    month: float | None = None
    boards: Mapping[str, float] = field(default_factory=dict)
    team: float | None = None
    teams: Mapping[str, float] = field(default_factory=dict)
    currency: str = "EUR"

    @property
    def is_set(self) -> bool:
        """Whether there is any limit."""
        return self.month is not None or self.team is not None or bool(self.boards or self.teams)

    def of_team(self, name: str | None) -> float | None:
        """This team's budget."""
        return None if name is None else self.teams.get(name, self.team)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The hosts' rules. `boards`: the overflow places that a board's runs may use, if not all. `classes`: the GPU class
    of a type's leaderboards, if it isn't the first home place's. `shadow`: the fraction of runs ranked at home that is
    also measured at an overflow place."""

    overflow: Overflow = field(default_factory=Overflow)
    other_class: OtherClass = "refuse"
    boards: Mapping[str, Sequence[str]] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    shadow: float = 0.0


@dataclass(frozen=True, kw_only=True)
class PlaceView:
    """A place as the policy sees it. `slots`, `classes` and `prices` (money per GPU and second) are by GPU type.
    `draining`: the GPU types for which hosts let it drain, with their reason, which may be empty."""

    name: str
    role: PlaceRole = "home"
    slots: Mapping[str, int] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    breaker: Breaker = field(default_factory=Breaker)
    draining: Mapping[str, str] = field(default_factory=dict)

    def works(self, gpu: str) -> bool:
        """Whether runs of this GPU type are sent there as a rule: it neither fails nor drains."""
        return self.breaker.state is State.CLOSED and gpu not in self.draining

    def why_not(self, gpu: str) -> str:
        """Why it doesn't take runs of this GPU type."""
        said = self.draining.get(gpu)
        if said is not None:
            return f"{self.name} is draining{f' ({said})' if said else ''}"
        return f"{self.name} is down ({self.breaker.why})"

    def class_of(self, gpu: str) -> str:
        """The class of its GPUs of this type. External machines are a class of their own until a host says that they
        are the same."""
        return self.classes.get(gpu) or (gpu if self.role == "home" else f"{gpu} at {self.name}")


@dataclass(frozen=True, kw_only=True)
class Demand:
    """The demand for a GPU type: how many runs are queued, the least GPU-seconds that one of them may use (overall, by
    board and by team), and how long recent runs took."""

    waiting: int = 0
    least_gpu_s: float = 0.0
    least_by_board: Mapping[str, float] = field(default_factory=dict)
    least_by_team: Mapping[str, float] = field(default_factory=dict)
    service: Service | None = None


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """The database's facts about the queue. `pinned`: places that runs are pinned to; `spent`: this month's spending
    including what open attempts may still cost, in total, by board and by team."""

    demand: Mapping[str, Demand] = field(default_factory=dict)
    pinned: frozenset[str] = frozenset()
    spent: float = 0.0
    spent_by_board: Mapping[str, float] = field(default_factory=dict)
    spent_by_team: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """When a cluster plans to start our first job of a GPU type, and the source: its plan for a queued job, or a dry
    run for one that isn't submitted yet."""

    at: datetime
    by: Source

    def told(self, now: datetime) -> str:
        """How soon, and according to what."""
        wait_s = (self.at - now).total_seconds()
        return f"{'immediately' if wait_s < 1 else f'in {span(wait_s)}'}, says {self.by}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The offered slots, preferred first, and by GPU type why overflow is used or not. `held_up`: what keeps it from
    being used; `held_boards`, `held_teams`: the same for the runs of single boards or teams."""

    slots: tuple[Slot, ...]
    why: Mapping[str, str]
    held_up: Mapping[str, str] = field(default_factory=dict)
    held_boards: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    held_teams: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def overflow_of(raw: Any) -> Overflow:
    """The rule from a configuration value, or Invalid."""
    if raw in ("never", "when_down"):
        return Overflow(when=raw)
    if isinstance(raw, Mapping) and list(raw) == ["when_wait_over"]:
        return Overflow(when="when_wait_over", after_s=seconds_of(raw["when_wait_over"]))
    raise Invalid(f"{raw!r} isn't a valid overflow rule", hint=_RULES)


def seconds_of(raw: Any) -> float:
    """A duration like "90s", "10m", "2h", or Invalid."""
    found = _SPAN.match(raw.strip()) if isinstance(raw, str) else None
    if found is None:
        raise Invalid(f"{raw!r} isn't a valid duration", hint='Write "90s", "10m" or "2h".')
    return float(found[1]) * _UNITS[found[2]]


def allowed_places(raw: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[str, ...]]:
    """The overflow places by board, with canonical board names."""
    return {contest.board_name(name): tuple(places) for name, places in raw.items()}


def month_named(text: str) -> tuple[datetime, datetime]:
    """The start of this month (2026-11) and of the next, or Invalid."""
    found = _MONTH.match(text.strip())
    if found is None or not 1 <= int(found[2]) <= 12 or int(found[1]) < 1:
        raise Invalid(f"{text!r} isn't a valid month", hint="Write it like 2026-11.")
    year, month = int(found[1]), int(found[2])
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    if following[0] > 9999:
        raise Invalid(f"{text!r} isn't a valid month", hint="Write it like 2026-11.")
    return datetime(year, month, 1, tzinfo=UTC), datetime(*following, 1, tzinfo=UTC)


def month_of(now: datetime) -> tuple[datetime, datetime]:
    """The same for the current month, in UTC."""
    return month_named(f"{now.astimezone(UTC):%Y-%m}")


def board_class(gpu: str, places: Sequence[PlaceView], rules: Rules) -> str:
    """The GPU class of this type's leaderboards: as configured, else the first home place's, else that of the first
    place that has the type."""
    if gpu in rules.classes:
        return rules.classes[gpu]
    having = [place for place in places if place.slots.get(gpu)]
    first = next((place for place in having if place.role == "home"), having[0] if having else None)
    return gpu if first is None else first.class_of(gpu)


def leaderboard_runs(gpu: str, place: PlaceView, places: Sequence[PlaceView], rules: Rules) -> Leaderboard:
    """What happens to leaderboard runs there: they rank, run unranked, or don't go there."""
    if place.class_of(gpu) == board_class(gpu, places, rules):
        return "yes"
    return "unranked" if rules.other_class == "unranked" else "no"


def needs_policy(places: Sequence[PlaceView], rules: Rules) -> bool:
    """Whether there is anything to decide. With only home places of one class each there isn't."""
    gpus = {gpu for place in places for gpu in place.slots}
    mixed = any(len({place.class_of(gpu) for place in places if place.slots.get(gpu)}) > 1 for gpu in gpus)
    other = any(place.class_of(gpu) != board_class(gpu, places, rules) for place in places for gpu in place.slots)
    return mixed or other or any(place.role == "overflow" or any(place.prices.values()) for place in places)


def planned(
    free: Sequence[Slot],
    places: Sequence[PlaceView],
    rules: Rules,
    backlog: Backlog,
    attempts: Iterable[OpenAttempt],
    now: datetime,
    *,
    starts: Mapping[tuple[str, str], Planned] | None = None,
) -> Plan:
    """The free slots that are offered, with their conditions.

    `starts`: by home place and GPU type, when it would start our next run, if it said so.
    """
    tried = list(attempts)
    by_name = {place.name: place for place in places}
    said = starts or {}
    gates = {
        gpu: _gate(gpu, places, rules, backlog.demand.get(gpu, Demand()), tried, now, said)
        for gpu in {gpu for place in places for gpu in place.slots}
    }
    warm: list[Slot] = []
    home: list[Slot] = []
    overflow: list[Slot] = []
    first: list[Slot] = []
    held = _held(gates, places, rules, backlog)
    for slot in free:
        place = by_name[slot.backend]
        known = replace(
            slot,
            leaderboard=leaderboard_runs(slot.gpu, place, places, rules),
            price=place.prices.get(slot.gpu, 0.0),
            gpu_class=place.class_of(slot.gpu),
            overflow=place.role == "overflow",
        )
        let_in = _let_in(known, place, places, rules, tried)
        if let_in is None:
            continue
        if slot.keeper is not None:
            warm.append(let_in)
            continue
        if place.role == "home":
            trial = ", to test whether it works again" if place.breaker.state is State.HALF_OPEN else ""
            start = said.get((slot.backend, slot.gpu))
            soon = "" if start is None else f", and would start it {start.told(now)}"
            alone = slot.why.removeprefix(f"{place.name} {HAD_ROOM}")
            home.append(replace(let_in, why=f"{place.name} {HAD_ROOM}{trial}{soon}{alone}"))
            continue
        gate = gates[slot.gpu]
        least = backlog.demand.get(slot.gpu, Demand()).least_gpu_s
        spent = _spent_up(let_in.price, rules.budget.month, backlog.spent, least)
        offered = _through(let_in, gate, backlog) if not spent else None
        if offered is not None:
            (first if gate.before_home else overflow).append(offered)
    return replace(held, slots=(*warm, *first, *home, *overflow))


def went(backend: str, why: str) -> str:
    """Where an attempt went and why, for its author; empty if home simply had room for it."""
    return f"at {backend}, because {why}" if why and HAD_ROOM not in why else ""


def budget_told(budget: Budget, backlog: Backlog) -> dict[str, Any]:
    """Each budget and what is spent of it, counting open runs at their maximum: for the hosts, as JSON."""
    return {
        "month": budget.month,
        "spent": backlog.spent,
        "boards": {
            board: {"month": most, "spent": backlog.spent_by_board.get(board, 0.0)}
            for board, most in budget.boards.items()
        },
        "team": budget.team,
        "teams": {
            team: {"month": budget.of_team(team), "spent": backlog.spent_by_team.get(team, 0.0)}
            for team in (*budget.teams, *(backlog.spent_by_team if budget.team is not None else ()))
        },
    }


def shadow_at(one: Ranked, places: Sequence[PlaceView], rules: Rules, backlog: Backlog) -> str | None:
    """The place for this run's shadow, if it gets one: the place works, its board may use it, no other order is waiting
    there, and the maximum cost fits into the month's budget. The coin chooses among several."""
    tossed = coin(one.run)
    homes = {place.name for place in places if place.role == "home"}
    if tossed >= rules.shadow or one.backend not in homes:
        return None
    able = [
        place.name
        for place in places
        if place.role == "overflow"
        and place.slots.get(one.gpu)
        and place.works(one.gpu)
        and place.name in rules.boards.get(one.board, (place.name,))
        and place.name not in backlog.pinned
        and _affords(one.gpu_s * place.prices.get(one.gpu, 0.0), one.board, rules.budget, backlog)
    ]
    return able[min(int(tossed / rules.shadow * len(able)), len(able) - 1)] if able else None


def is_late(start: Planned | None, rule: Overflow, now: datetime) -> bool:
    """Whether a cluster said that it won't start any of our jobs for longer than the hosts would wait."""
    if start is None or rule.when != "when_wait_over":
        return False
    return (start.at - now).total_seconds() > rule.after_s


def movable(attempt: OpenAttempt) -> bool:
    """Whether it could be withdrawn: accepted there, not started, and not cancelled yet."""
    return (
        attempt.state is AttemptState.SUBMITTED
        and attempt.started_at is None
        and attempt.cancel_at is None
        and attempt.withdraw_at is None
    )


def coming_home(
    slots: Sequence[Slot],
    places: Sequence[PlaceView],
    attempts: Sequence[OpenAttempt],
    waiting: Mapping[str, int],
    *,
    answers: Collection[str] = (),
) -> list[tuple[OpenAttempt, list[Slot]]]:
    """Attempts waiting elsewhere for what home has free now and nobody else is waiting for, with the home slots that
    each may go to. The newest come first: the older ones are closer to their turn there.

    `answers`: homes being tested that have just answered. One attempt goes there as the test run.
    """
    home = [place for place in places if place.role == "home"]
    trying = {
        g.name for g in home if g.name in answers and g.breaker.state is State.HALF_OPEN and not _tried(g, attempts)
    }
    homes = {place.name for place in home if place.breaker.state is State.CLOSED} | trying
    away = {place.name for place in places if place.role == "overflow"}
    drained = {(place.name, gpu) for place in home for gpu in place.draining}
    slots = [slot for slot in slots if (slot.backend, slot.gpu) not in drained]
    found = []
    left = {(s.backend, s.gpu): min(1, s.free) if s.backend in trying else s.free for s in slots if s.backend in homes}
    spare = {gpu: sum(n for (_, kind), n in left.items() if kind == gpu) - waiting.get(gpu, 0) for _, gpu in left}
    for attempt in sorted(attempts, key=lambda one: one.id, reverse=True):
        if attempt.backend in away and movable(attempt) and spare.get(attempt.gpu, 0) >= attempt.gpus:
            spare[attempt.gpu] -= attempt.gpus
            found.append((attempt, [s for s in slots if s.backend in homes and s.gpu == attempt.gpu and s.free > 0]))
    return found


# -------------------------------------------------------------------------------------------------------------- within


@dataclass(frozen=True, kw_only=True)
class _Gate:
    """Whether overflow takes runs of a GPU type: at most `most`, and only those queued before `queued_before`."""

    is_open: bool
    why: str
    most: int | None = None
    queued_before: datetime | None = None
    before_home: bool = False


def _gate(
    gpu: str,
    places: Sequence[PlaceView],
    rules: Rules,
    demand: Demand,
    attempts: Sequence[OpenAttempt],
    now: datetime,
    starts: Mapping[tuple[str, str], Planned],
) -> _Gate:
    rule = rules.overflow
    if rule.when == "never":
        return _Gate(is_open=False, why="overflow is turned off")
    homes = [place for place in places if place.role == "home" and place.slots.get(gpu)]
    if not homes:
        return _Gate(is_open=True, why=f"no home place has {gpu}")
    up = [place for place in homes if place.works(gpu)]
    if not up:
        said = "; ".join(place.why_not(gpu) for place in homes)
        return _Gate(is_open=True, why=said)
    if rule.when == "when_down":
        return _Gate(is_open=False, why=f"{up[0].name} works, and overflow is only used when it doesn't")
    return _wait_gate(gpu, up, rule, demand, attempts, now, starts)


def _wait_gate(
    gpu: str,
    up: Sequence[PlaceView],
    rule: Overflow,
    demand: Demand,
    attempts: Sequence[OpenAttempt],
    now: datetime,
    starts: Mapping[tuple[str, str], Planned],
) -> _Gate:
    """By waiting time: all runs if the cluster itself says that nothing starts soon; else as many as would wait too
    long, in fair order; else those that have waited too long. A place with free slots that says nothing is assumed to
    start immediately.
    """
    too_long = span(rule.after_s)
    held = Counter[str]()
    for one in attempts:
        held[one.backend] += one.gpus if one.gpu == gpu else 0
    told = [(place, starts[place.name, gpu]) for place in up if (place.name, gpu) in starts]
    silent = any((place.name, gpu) not in starts and place.slots[gpu] > held[place.name] for place in up)
    where, first = min(told, key=lambda one: one[1].at, default=(up[0], None))
    if first is not None and not silent and is_late(first, rule, now):
        wait = span((first.at - now).total_seconds())
        why = f"the cluster won't start any of our jobs for {wait}, says {first.by}"
        return _Gate(is_open=True, before_home=True, why=why)
    soon = "" if first is None else f", and {where.name} would start the next {first.told(now)}"
    slots = sum(place.slots[gpu] for place in up)
    open_now = sum(held[place.name] for place in up)
    if demand.waiting <= slots - open_now:
        return _Gate(is_open=False, why=f"{up[0].name} has free slots{soon}")
    excess = demand.waiting - _in_time(demand, open_now, slots, rule.after_s)
    if excess > 0:
        why = f"{excess} queued runs would wait over {too_long}, judging by recent runs"
        return _Gate(is_open=True, most=excess, why=why)
    before = now - timedelta(seconds=rule.after_s)
    return _Gate(is_open=True, queued_before=before, why=f"runs that have waited over {too_long} may use it")


def _in_time(demand: Demand, open_now: int, slots: int, after_s: float) -> int:
    """How many queued runs will start within that time, judging by recent runs. All, if that isn't known."""

    def wait_s(ahead: int) -> float:
        found = eta.starts_in_s(ahead, open_now, slots, demand.service)
        return 0.0 if found is None else (found[0] + found[1]) / 2

    return bisect_right(range(demand.waiting), after_s, key=wait_s)


def _let_in(
    slot: Slot, place: PlaceView, places: Sequence[PlaceView], rules: Rules, attempts: Sequence[OpenAttempt]
) -> Slot | None:
    """The slot, if hosts don't let the place drain and its breaker lets runs in. A run that has nowhere else to go is
    let in by the breaker anyway and waits; a place that drains takes none."""
    if slot.gpu in place.draining:
        return None
    if place.breaker.state is State.CLOSED:
        return slot
    elsewhere = [
        other
        for other in places
        if other is not place
        and other.slots.get(slot.gpu)
        and slot.gpu not in other.draining
        and (other.role == "home" or rules.overflow.when != "never")
    ]
    if place.role == "home" and not elsewhere:
        return slot
    if place.breaker.state is State.OPEN:
        return None
    return None if _tried(place, attempts) else replace(slot, free=1, alone=True)


def _tried(place: PlaceView, attempts: Sequence[OpenAttempt]) -> bool:
    """Whether a test run is there already."""
    since = place.breaker.since
    return any(one.backend == place.name and (since is None or one.opened_at >= since) for one in attempts)


def _through(slot: Slot, gate: _Gate, backlog: Backlog) -> Slot | None:
    if not gate.is_open:
        return replace(slot, pinned_only=True, why="it was pinned there") if slot.backend in backlog.pinned else None
    free = slot.free if gate.most is None else min(slot.free, gate.most)
    return replace(slot, free=free, queued_before=gate.queued_before, why=gate.why)


def _affords(cost: float, board: str, budget: Budget, backlog: Backlog) -> bool:
    """Whether this much more fits into the month's budget, in total and for the board."""
    in_all = budget.month is None or backlog.spent + cost <= budget.month
    bound = budget.boards.get(board)
    return cost <= 0 or (in_all and (bound is None or backlog.spent_by_board.get(board, 0.0) + cost <= bound))


def _spent_up(price: float, bound: float | None, spent: float, least_gpu_s: float) -> bool:
    """Whether a budget has no room for even the cheapest queued run at this price."""
    if price <= 0 or bound is None:
        return False
    left = bound - spent
    return left <= 0 or left < least_gpu_s * price


def _held(gates: Mapping[str, _Gate], places: Sequence[PlaceView], rules: Rules, backlog: Backlog) -> Plan:
    """A plan's explanations, without its slots: why overflow is used or not, and what only the budget keeps at home.

    By places, not by what is free there now: a momentarily busy place doesn't change the budget.
    """
    budget = rules.budget
    held_up: dict[str, str] = {}
    held_boards: dict[str, dict[str, str]] = {}
    held_teams: dict[str, dict[str, str]] = {}
    why = {gpu: gate.why for gpu, gate in gates.items()}
    for gpu, gate in gates.items():
        away = [
            g
            for g in places
            if g.role == "overflow" and g.slots.get(gpu) and g.breaker.state is not State.OPEN and gpu not in g.draining
        ]
        if not gate.is_open or not away:
            continue
        demand = backlog.demand.get(gpu, Demand())
        prices = {g.name: g.prices.get(gpu, 0.0) for g in away}
        shut = [_spent_up(price, budget.month, backlog.spent, demand.least_gpu_s) for price in prices.values()]
        if any(shut):
            why[gpu] = f"{gate.why}; this month's budget is used up: it waits for home"
        if all(shut):
            held_up[gpu] = BUDGET_SPENT
            continue
        for board, least in demand.least_by_board.items():
            mine = [price for name, price in prices.items() if name in rules.boards.get(board, [name])]
            bound, spent = budget.boards.get(board), backlog.spent_by_board.get(board, 0.0)
            if mine and all(_spent_up(price, bound, spent, least) for price in mine):
                held_boards.setdefault(gpu, {})[board] = BOARD_SPENT
        for team, least in demand.least_by_team.items():
            bound, spent = budget.of_team(team), backlog.spent_by_team.get(team, 0.0)
            if all(_spent_up(price, bound, spent, least) for price in prices.values()):
                held_teams.setdefault(gpu, {})[team] = TEAM_SPENT
    return Plan(slots=(), why=why, held_up=held_up, held_boards=held_boards, held_teams=held_teams)
