"""Where a run goes when there is more than one place for it: the cluster at home, or others that cost money. Pure.

Home comes first. The others are for overflow: they are offered by the hosts' rule (never, when home is down, when the
wait would be too long), for boards that may use them, within the month's budget. What they time must be the same class
of GPU as the board's, or it doesn't rank, or doesn't go there at all: one leaderboard never mixes classes.

The caller gives what is known in one look; the answer is slots with their conditions, and for each GPU type a sentence
on why the others are used or not. The store's claim holds each run to its slot's conditions, and to the budget.
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
BUDGET_SPENT = "the month's budget for other places is used up: it waits for the cluster"
TEAM_SPENT = "its team's budget of this month for other places is used up: it waits for the cluster"
BOARD_SPENT = "its board's budget of this month for other places is used up: it waits for the cluster"
HAD_ROOM = "had a free slot"
_RULES = 'Write overflow = "never", "when_down", or { when_wait_over = "10m" }.'
_MONTH = re.compile(r"(\d{4})-(\d{2})\Z")


@dataclass(frozen=True, kw_only=True)
class Overflow:
    """When other places than the cluster take runs. `after_s` is how long a wait is too long."""

    when: When = "never"
    after_s: float = 0.0

    def __str__(self) -> str:
        return self.when if self.when != "when_wait_over" else f"when_wait_over {span(self.after_s)}"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What may be spent in a month (UTC): in all, for a board, for each team, for a team that is named; None and what
    isn't named: no bound. Who is in no team has none of a team's."""

    month: float | None = None
    boards: Mapping[str, float] = field(default_factory=dict)
    team: float | None = None
    teams: Mapping[str, float] = field(default_factory=dict)
    currency: str = "EUR"

    @property
    def is_set(self) -> bool:
        """Whether anything is bounded."""
        return self.month is not None or self.team is not None or bool(self.boards or self.teams)

    def of_team(self, name: str | None) -> float | None:
        """What this team may spend."""
        return None if name is None else self.teams.get(name, self.team)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the hosts decided. `boards`: which overflow places the runs of a board may use, where not all of them.
    `classes`: the class of GPU that boards of a type are about, where it isn't the first home place's. `shadow`: which
    fraction of the runs that rank at home is measured at an overflow place, too."""

    overflow: Overflow = field(default_factory=Overflow)
    other_class: OtherClass = "refuse"
    boards: Mapping[str, Sequence[str]] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    shadow: float = 0.0


@dataclass(frozen=True, kw_only=True)
class PlaceView:
    """A place as the policy sees it. `slots`, `classes` and `prices` (money per GPU and second) are by GPU type."""

    name: str
    role: PlaceRole = "home"
    slots: Mapping[str, int] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    breaker: Breaker = field(default_factory=Breaker)

    def class_of(self, gpu: str) -> str:
        """What its GPUs of this type are. Somebody else's machines are a class of their own until a host says that
        they are the same."""
        return self.classes.get(gpu) or (gpu if self.role == "home" else f"{gpu} at {self.name}")


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What waits for a GPU type: how many runs, the least that one of them may hold (GPU-seconds), of all, by board and
    by team, how long runs took lately."""

    waiting: int = 0
    least_gpu_s: float = 0.0
    least_by_board: Mapping[str, float] = field(default_factory=dict)
    least_by_team: Mapping[str, float] = field(default_factory=dict)
    service: Service | None = None


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """What the rows say of all that waits. `pinned`: places that runs were ordered to; `spent`: money of this month,
    what open attempts may still cost included, in all, by board and by team."""

    demand: Mapping[str, Demand] = field(default_factory=dict)
    pinned: frozenset[str] = frozenset()
    spent: float = 0.0
    spent_by_board: Mapping[str, float] = field(default_factory=dict)
    spent_by_team: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """When a cluster means to start the first of ours of a GPU type, and who says so: its plan for what waits there,
    or a trial of what isn't sent yet."""

    at: datetime
    by: Source

    def told(self, now: datetime) -> str:
        """In how long, and by whom it is known."""
        wait_s = (self.at - now).total_seconds()
        return f"{'at once' if wait_s < 1 else f'in {span(wait_s)}'}, says {self.by}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Which slots are offered, the preferred first, and by GPU type why overflow is used or isn't. `held_up`: where it
    would be used, were it not for this; `held_boards`, `held_teams`: the same for runs of a board or a team alone."""

    slots: tuple[Slot, ...]
    why: Mapping[str, str]
    held_up: Mapping[str, str] = field(default_factory=dict)
    held_boards: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    held_teams: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def overflow_of(raw: Any) -> Overflow:
    """The rule as a configuration says it, or Invalid."""
    if raw in ("never", "when_down"):
        return Overflow(when=raw)
    if isinstance(raw, Mapping) and list(raw) == ["when_wait_over"]:
        return Overflow(when="when_wait_over", after_s=seconds_of(raw["when_wait_over"]))
    raise Invalid(f"{raw!r} is no rule for overflow", hint=_RULES)


def seconds_of(raw: Any) -> float:
    """A span of time like "90s", "10m", "2h", or Invalid."""
    found = _SPAN.match(raw.strip()) if isinstance(raw, str) else None
    if found is None:
        raise Invalid(f"{raw!r} is no span of time", hint='Write "90s", "10m" or "2h".')
    return float(found[1]) * _UNITS[found[2]]


def allowed_places(raw: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[str, ...]]:
    """The list of overflow places by board, its names as boards are called."""
    return {contest.board_name(name): tuple(places) for name, places in raw.items()}


def month_named(text: str) -> tuple[datetime, datetime]:
    """The beginning of this month (2026-11) and of the one after it, or Invalid."""
    found = _MONTH.match(text.strip())
    if found is None or not 1 <= int(found[2]) <= 12 or int(found[1]) < 1:
        raise Invalid(f"{text!r} is no month", hint="Write 2026-11.")
    year, month = int(found[1]), int(found[2])
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    if following[0] > 9999:
        raise Invalid(f"{text!r} is no month", hint="Write 2026-11.")
    return datetime(year, month, 1, tzinfo=UTC), datetime(*following, 1, tzinfo=UTC)


def month_of(now: datetime) -> tuple[datetime, datetime]:
    """The same of the month that is now, by UTC."""
    return month_named(f"{now.astimezone(UTC):%Y-%m}")


def board_class(gpu: str, places: Sequence[PlaceView], rules: Rules) -> str:
    """The one class that leaderboards of this GPU type are about: as set, else the first home place's, else the first
    place's that has it."""
    if gpu in rules.classes:
        return rules.classes[gpu]
    having = [place for place in places if place.slots.get(gpu)]
    first = next((place for place in having if place.role == "home"), having[0] if having else None)
    return gpu if first is None else first.class_of(gpu)


def leaderboard_runs(gpu: str, place: PlaceView, places: Sequence[PlaceView], rules: Rules) -> Leaderboard:
    """What becomes of leaderboard runs there: they rank, are run without ranking, or don't go there."""
    if place.class_of(gpu) == board_class(gpu, places, rules):
        return "yes"
    return "unranked" if rules.other_class == "unranked" else "no"


def needs_policy(places: Sequence[PlaceView], rules: Rules) -> bool:
    """Whether there is anything to decide. Home places of one class each are claimed for as ever."""
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
    """Which of these free slots are offered, under which conditions.

    `starts`: by home place and GPU type, when the next of ours would be started there, where it told.
    """
    tried = list(attempts)
    by_name = {place.name: place for place in places}
    said = starts or {}
    gates = {
        gpu: _gate(gpu, places, rules, backlog.demand.get(gpu, Demand()), tried, now, said)
        for gpu in {gpu for place in places for gpu in place.slots}
    }
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
        if place.role == "home":
            trial = ", to try whether it works again" if place.breaker.state is State.HALF_OPEN else ""
            start = said.get((slot.backend, slot.gpu))
            soon = "" if start is None else f", and would start it {start.told(now)}"
            home.append(replace(let_in, why=f"{place.name} {HAD_ROOM}{trial}{soon}"))
            continue
        gate = gates[slot.gpu]
        least = backlog.demand.get(slot.gpu, Demand()).least_gpu_s
        spent = _spent_up(let_in.price, rules.budget.month, backlog.spent, least)
        offered = _through(let_in, gate, backlog) if not spent else None
        if offered is not None:
            (first if gate.before_home else overflow).append(offered)
    return replace(held, slots=(*first, *home, *overflow))


def went(backend: str, why: str) -> str:
    """Where an attempt went and why, for its author; empty where home simply had room for it."""
    return f"at {backend}, since {why}" if why and HAD_ROOM not in why else ""


def budget_told(budget: Budget, backlog: Backlog) -> dict[str, Any]:
    """The bounds and what is spent of each, open runs at their most: for the hosts, as JSON."""
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
    """The place where this run is measured once more, if it is one of those that are: it works, its board may use it,
    it has no order to wait for already, and what it costs at most fits into the month. The coin chooses among them."""
    tossed = coin(one.run)
    homes = {place.name for place in places if place.role == "home"}
    if tossed >= rules.shadow or one.backend not in homes:
        return None
    able = [
        place.name
        for place in places
        if place.role == "overflow"
        and place.slots.get(one.gpu)
        and place.breaker.state is State.CLOSED
        and place.name in rules.boards.get(one.board, (place.name,))
        and place.name not in backlog.pinned
        and _affords(one.gpu_s * place.prices.get(one.gpu, 0.0), one.board, rules.budget, backlog)
    ]
    return able[min(int(tossed / rules.shadow * len(able)), len(able) - 1)] if able else None


def is_late(start: Planned | None, rule: Overflow, now: datetime) -> bool:
    """Whether a cluster said that it starts nothing of ours for longer than the hosts would wait."""
    if start is None or rule.when != "when_wait_over":
        return False
    return (start.at - now).total_seconds() > rule.after_s


def movable(attempt: OpenAttempt) -> bool:
    """Whether it could be withdrawn where it is: taken there, not started, and nobody has asked for its end yet."""
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
    """Attempts that wait elsewhere for what home has free now and nobody else waits for, with the home slots that
    each may go to. Those that were opened last come first: the others are the nearest to their turn there.

    `answers`: homes that are tried again and have just answered. One attempt goes there, to see whether it runs.
    """
    home = [place for place in places if place.role == "home"]
    trying = {
        g.name for g in home if g.name in answers and g.breaker.state is State.HALF_OPEN and not _tried(g, attempts)
    }
    homes = {place.name for place in home if place.breaker.state is State.CLOSED} | trying
    away = {place.name for place in places if place.role == "overflow"}
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
    """Whether overflow takes runs of a GPU type: as many as `most`, those queued before `queued_before`."""

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
        return _Gate(is_open=False, why="the hosts use no overflow")
    homes = [place for place in places if place.role == "home" and place.slots.get(gpu)]
    if not homes:
        return _Gate(is_open=True, why=f"no home place has {gpu}")
    up = [place for place in homes if place.breaker.state is State.CLOSED]
    if not up:
        said = "; ".join(f"{place.name} is down ({place.breaker.why})" for place in homes)
        return _Gate(is_open=True, why=said)
    if rule.when == "when_down":
        return _Gate(is_open=False, why=f"{up[0].name} works, and overflow is for when it doesn't")
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
    """By the wait: all of them where the cluster itself says that nothing starts soon; else as many as would wait too
    long, the fairest first; else those that have. A place with free slots that doesn't tell is taken to start at once.
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
        why = f"the cluster starts nothing of ours for {wait}, says {first.by}"
        return _Gate(is_open=True, before_home=True, why=why)
    soon = "" if first is None else f", and {where.name} would start the next {first.told(now)}"
    slots = sum(place.slots[gpu] for place in up)
    open_now = sum(held[place.name] for place in up)
    if demand.waiting <= slots - open_now:
        return _Gate(is_open=False, why=f"{up[0].name} has free slots{soon}")
    excess = demand.waiting - _in_time(demand, open_now, slots, rule.after_s)
    if excess > 0:
        why = f"{excess} of those that wait would wait over {too_long}, by how long runs took lately"
        return _Gate(is_open=True, most=excess, why=why)
    before = now - timedelta(seconds=rule.after_s)
    return _Gate(is_open=True, queued_before=before, why=f"for those that have waited over {too_long}")


def _in_time(demand: Demand, open_now: int, slots: int, after_s: float) -> int:
    """How many of those that wait will start within that time, as runs went lately. All, where nobody can know."""

    def wait_s(ahead: int) -> float:
        found = eta.starts_in_s(ahead, open_now, slots, demand.service)
        return 0.0 if found is None else (found[0] + found[1]) / 2

    return bisect_right(range(demand.waiting), after_s, key=wait_s)


def _let_in(
    slot: Slot, place: PlaceView, places: Sequence[PlaceView], rules: Rules, attempts: Sequence[OpenAttempt]
) -> Slot | None:
    """The slot, as far as the place's breaker lets runs in. Where a run has nowhere else to go, it goes and waits."""
    if place.breaker.state is State.CLOSED:
        return slot
    elsewhere = [
        other
        for other in places
        if other is not place and other.slots.get(slot.gpu) and (other.role == "home" or rules.overflow.when != "never")
    ]
    if place.role == "home" and not elsewhere:
        return slot
    if place.breaker.state is State.OPEN:
        return None
    return None if _tried(place, attempts) else replace(slot, free=1, alone=True)


def _tried(place: PlaceView, attempts: Sequence[OpenAttempt]) -> bool:
    """Whether a run is there to see whether the place works again."""
    since = place.breaker.since
    return any(one.backend == place.name and (since is None or one.opened_at >= since) for one in attempts)


def _through(slot: Slot, gate: _Gate, backlog: Backlog) -> Slot | None:
    if not gate.is_open:
        return replace(slot, pinned_only=True, why="it was ordered there") if slot.backend in backlog.pinned else None
    free = slot.free if gate.most is None else min(slot.free, gate.most)
    return replace(slot, free=free, queued_before=gate.queued_before, why=gate.why)


def _affords(cost: float, board: str, budget: Budget, backlog: Backlog) -> bool:
    """Whether so much more fits into what may be spent this month, in all and for the board."""
    in_all = budget.month is None or backlog.spent + cost <= budget.month
    bound = budget.boards.get(board)
    return cost <= 0 or (in_all and (bound is None or backlog.spent_by_board.get(board, 0.0) + cost <= bound))


def _spent_up(price: float, bound: float | None, spent: float, least_gpu_s: float) -> bool:
    """Whether a bound has no room for even the least that waits, at this price."""
    if price <= 0 or bound is None:
        return False
    left = bound - spent
    return left <= 0 or left < least_gpu_s * price


def _held(gates: Mapping[str, _Gate], places: Sequence[PlaceView], rules: Rules, backlog: Backlog) -> Plan:
    """A plan's words, without its slots: why overflow is used or isn't, and what only money keeps at home.

    By places, not by what is free there now: that a place is at work for a moment gives nobody's money back.
    """
    budget = rules.budget
    held_up: dict[str, str] = {}
    held_boards: dict[str, dict[str, str]] = {}
    held_teams: dict[str, dict[str, str]] = {}
    why = {gpu: gate.why for gpu, gate in gates.items()}
    for gpu, gate in gates.items():
        away = [g for g in places if g.role == "overflow" and g.slots.get(gpu) and g.breaker.state is not State.OPEN]
        if not gate.is_open or not away:
            continue
        demand = backlog.demand.get(gpu, Demand())
        prices = {g.name: g.prices.get(gpu, 0.0) for g in away}
        shut = [_spent_up(price, budget.month, backlog.spent, demand.least_gpu_s) for price in prices.values()]
        if any(shut):
            why[gpu] = f"{gate.why}; the month's budget is used up: it waits for home"
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
