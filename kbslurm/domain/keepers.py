"""Keepers: jobs that hold a GPU for a while, so that runs start in it at once. When to start one, and when to let go.

The rules are a contract with the other people of a cluster: a keeper is started only for work that recent history says
it will do, is let go after a while without work or when others wait, and is idle for at most a fifth of the time. Pure.
"""

from __future__ import annotations

import base64
import math
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from kbslurm.domain.amounts import counted, span
from kbslurm.domain.run import Handle, KeeperId, KeeperName, Seen
from kbslurm.errors import Invalid

KEEPER_PREFIX = "kbk-"

# A keeper waits for work for `idle` at its end. Four times as much work keeps that within a fifth of what it holds.
MOST_IDLE = 0.2
TOLERANCE = 0.005
FREE_IDLE = 0.9
# Idle keepers are let go a little earlier, so that the share stays below the bound from which no new one is started.
LET_GO_AT = 0.18
# A keeper between two runs isn't idle yet.
BETWEEN_RUNS_S = 15.0
HISTORY_S = 1_800.0  # the period whose submissions say how much work comes in
DAY_S = 86_400.0
LOOK_EVERY_S = 300.0
REST_S = 300.0  # after one was let go for others, or went wrong, none is started for so long
LONGEST_REST_S = 4 * 3_600.0  # it doubles with each that fails without having served a run, up to this
TOLD_OFF_S = 3_600.0  # and for so long after somebody at the site cancelled one
STARTS_WITHIN_S = 60.0  # what a run may take to start, beyond its own limit, where its site doesn't say otherwise
END_S = 30.0  # after that: what srun, supervisor and the end of a step take; its keeper takes no run without it
CLOCKS_S = 30.0  # how much sooner than we a keeper may see its end: its node's prolog and the clocks between
LEAST_RUN_S = 60.0  # one that could take no run as long as this isn't worth starting
STARTS_WARM_S = 1.0  # what a run takes to start in a free keeper
LEAST_IDLE_S = 10.0
LONGEST_IDLE_S = 1_800.0
LONGEST_LIFE_S = 12 * 3_600.0

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(
    r"(?:(?P<days>[a-z]{3}(?:-[a-z]{3})?(?:,[a-z]{3}(?:-[a-z]{3})?)*)\s+)?"
    r"(?P<from>[0-9]{1,2}:[0-9]{2})-(?P<to>[0-9]{1,2}:[0-9]{2})(?:\s+(?P<zone>\S+))?",
    re.IGNORECASE,
)
_HOURS_HINT = 'Write it like "18:00-24:00" (UTC), or "sat,sun 08:00-02:00 Europe/Berlin".'


@dataclass(frozen=True, kw_only=True)
class Warm:
    """What a site allows for a GPU type. `max`: how many keepers at a time. `idle_s`: how long one waits for work;
    `life_s`: its time limit. `hours`: when one may be started; any time if empty. `give_back`: they go when other
    people's jobs wait. There is no way to write "always"."""

    max: int
    idle_s: float = 300.0
    life_s: float = 4 * 3_600.0
    hours: tuple[str, ...] = ()
    give_back: bool = True


class KeeperState(StrEnum):
    """A keeper's state. ASKED: a host wants it, and no daemon has taken it up. INTENT: committed, perhaps not sent yet;
    AMBIGUOUS: perhaps sent. DRAINING: no more work."""

    ASKED = "asked"
    INTENT = "intent"
    AMBIGUOUS = "ambiguous"
    SUBMITTED = "submitted"
    HOLDING = "holding"
    DRAINING = "draining"
    ENDED = "ended"
    REFUSED = "refused"


OPEN_KEEPERS = frozenset(KeeperState) - {KeeperState.ENDED, KeeperState.REFUSED}


class KeeperEnding(StrEnum):
    """How a keeper ended, according to the evidence."""

    IDLE = "idle"  # no work for a while
    LIFE = "life"  # its time was over
    GAVE_BACK = "gave_back"  # others waited
    DRAINED = "drained"  # a host, or the policy
    PREEMPTED = "preempted"
    NODE_FAILURE = "node_failure"
    CANCELLED = "cancelled"  # from outside
    UNFIT = "unfit"  # its device wasn't clean before or after a run
    FAILED = "failed"  # its script ended otherwise
    REFUSED = "refused"  # the scheduler refused it
    VANISHED = "vanished"  # every source was asked, twice, and none knows it


@dataclass(frozen=True, kw_only=True)
class Keeper:
    """A keeper that may hold a GPU. `why`: why it was started, and `asked_by` whom, if a host did. `drain_at`: since
    when it is let go. `looked_at`, `others`: when its partition was last looked at, and whether others waited.
    `busy`: a run is in it; `free_since`: when the last one left, or it began. `avoid_nodes`: not there. `start_s`: what
    a run may take to start there, beyond its own limit; its site says so and no row."""

    id: KeeperId
    name: KeeperName
    backend: str
    gpu: str
    state: KeeperState
    handle: Handle | None
    opened_at: datetime
    life_s: float
    idle_s: float
    why: str = ""
    asked_by: str | None = None
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    seen_at: datetime | None = None
    expected_at: datetime | None = None
    node: str | None = None
    clean_sweeps: int = 0
    swept_at: datetime | None = None
    drain_at: datetime | None = None
    drain_why: str = ""
    drain_as: KeeperEnding | None = None
    looked_at: datetime | None = None
    others: str = ""
    busy: bool = False
    free_since: datetime | None = None
    served: int = 0
    avoid_nodes: tuple[str, ...] = ()
    start_s: float = STARTS_WITHIN_S

    @property
    def ends_at(self) -> datetime | None:
        """When its time is over; None while it waits to start."""
        return None if self.started_at is None else self.started_at + timedelta(seconds=self.life_s)

    def room_s(self, now: datetime) -> float:
        """The longest run that it can still take; 0 if it takes none."""
        if self.state is not KeeperState.HOLDING or self.drain_at is not None or self.ends_at is None:
            return 0.0
        return max(0.0, (self.ends_at - now).total_seconds() - beyond_s(self.start_s))

    def idle_for_s(self, now: datetime) -> float:
        """How long it has been without work."""
        if self.busy or self.free_since is None or self.started_at is None:
            return 0.0
        return max(0.0, (now - self.free_since).total_seconds())


@dataclass(frozen=True, kw_only=True)
class KeeperSighting:
    """One observation of a keeper. `ending` is set exactly if it is ENDED. `draining`: it takes no more work, by its
    own decision. `served`, `idle_since`: what it says of itself."""

    seen: Seen
    handle: Handle | None = None
    node: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    expected_at: datetime | None = None
    ending: KeeperEnding | None = None
    reason: str = ""
    draining: bool = False
    served: int = 0
    idle_since: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What history says about a GPU type at a site. `waiting`: queued runs that could go into a keeper; `sent`: runs
    that wait in the scheduler's queue. `run_s`: how long a recent run held its GPU, on average; None if there were too
    few. `came`: how many such runs were submitted within HISTORY_S. `held_s`, `idle_s`: what keepers held and left
    unused within a day. `cold_s`: how long recent runs waited in the scheduler's queue. `left_as`, `left_at`: how and
    when a keeper last ended against the policy's will, and `left_why` the reason. `failures`: how many times in a row
    one failed before it served a run, since one did or a host asked for one; those of one order count once. `shunned`:
    nodes that are left out, since runs of several people failed there."""

    waiting: int = 0
    sent: int = 0
    run_s: float | None = None
    came: int = 0
    held_s: float = 0.0
    idle_s: float = 0.0
    cold_s: float | None = None
    left_as: KeeperEnding | None = None
    left_at: datetime | None = None
    left_why: str = ""
    failures: int = 0
    shunned: tuple[str, ...] = ()

    @property
    def idle_share(self) -> float:
        """The unused part of what keepers held within a day."""
        return self.idle_s / self.held_s if self.held_s > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Decision:
    """How many keepers to start now, and why so many; which to let go, and why. `spare`: so many more slots are left
    free as runs end, since keepers that are wanted found none."""

    open: int
    why: str
    spare: int = 0
    drain: Sequence[tuple[Keeper, KeeperEnding, str]] = field(default_factory=tuple)


def new_keeper_name() -> KeeperName:
    """A unique job name, which can't be an attempt's."""
    token = base64.b32encode(secrets.token_bytes(16)).decode().rstrip("=").lower()
    return KeeperName(KEEPER_PREFIX + token)


# One that ends so before it has served a run: the next one may well fare the same.
FAILURES = frozenset(
    {
        KeeperEnding.FAILED,
        KeeperEnding.REFUSED,
        KeeperEnding.UNFIT,
        KeeperEnding.NODE_FAILURE,
        KeeperEnding.VANISHED,
    }
)


# ----------------------------------------------------------------------------------------------------------- the rules


def decided(warm: Warm, facts: Facts, keepers: Sequence[Keeper], room: int, now: datetime) -> Decision:
    """What to do about one GPU type's keepers at one site. `room`: how many more jobs may be open there."""
    going = tuple(_let_go(warm, facts, keepers, now))
    gone = {one.id for one, _, _ in going}
    live = [one for one in keepers if one.drain_at is None and one.id not in gone]
    many, why = wanted(warm, facts, now)
    # One that is on its way out holds its GPU until its run is over.
    short = max(0, min(many - len(live), warm.max - len(keepers)))
    starts = min(short, room)
    return Decision(open=starts, why=why, spare=short - starts, drain=going)


def wanted(warm: Warm, facts: Facts, now: datetime) -> tuple[int, str]:
    """How many keepers history justifies now, and the reason. Each must be expected to work for at least four fifths of
    what it holds, and all of them together with what was held in the last 24 hours, too."""
    if warm.max < 1:
        return 0, "the site's file allows none"
    if not is_open(warm.hours, now):
        return 0, f"outside of the site's hours ({'; '.join(warm.hours)})"
    if is_too_idle(warm, facts):
        return 0, (
            f"warm workers were idle for {facts.idle_share:.0%} of what they held in the last 24 h,"
            f" and more than {MOST_IDLE:.0%} is too much: no new one"
        )
    if why := rests(facts, now):
        return 0, why
    backlog = facts.waiting + facts.sent
    if not backlog:
        return 0, "no run waits"
    if facts.run_s is None:
        return 0, "too few runs lately to say how much work there is"
    told = f"{counted(backlog, 'run')} waiting, about {span(facts.run_s)} each, and {facts.came} in the last 30 min"
    for many in range(min(warm.max, backlog + math.ceil(load(facts))), 0, -1):
        if _pays(many, warm, facts):
            return many, f"{told}: enough work for {counted(many, 'warm worker')}"
    return 0, f"{told}: too little work for 1 warm worker"


def _pays(many: int, warm: Warm, facts: Facts) -> bool:
    """Whether so many would be idle for little enough of the time."""
    run_s = max(1.0, facts.run_s or 0.0)
    # What waits is worth an idle end of the keeper's if it is four times as much. What the scheduler has already isn't
    # a keeper's to do: it only shows that runs wait.
    work = load(facts) + facts.waiting * run_s / (warm.idle_s / MOST_IDLE)
    patience = int(many * (facts.cold_s or 0.0) / run_s) + facts.waiting
    busy = busy_share(work, many, patience)
    if busy < 1 - MOST_IDLE - TOLERANCE:
        return False
    held_s = facts.held_s + many * HISTORY_S
    return facts.idle_s + many * HISTORY_S * (1 - busy - TOLERANCE) <= MOST_IDLE * held_s


def busy_share(work: float, keepers: int, patience: int) -> float:
    """How much of the time keepers are busy if `work` GPUs' worth of runs come in at random and a run that finds
    `patience` others waiting for a keeper goes another way (the queue M/M/n/n+q)."""
    weights, weight = [1.0], 1.0
    for k in range(1, keepers + min(patience, 10_000) + 1):
        weight *= work / min(k, keepers)
        if weight > 1e200:
            return 1.0
        weights.append(weight)
    busy = sum(min(k, keepers) * weight for k, weight in enumerate(weights))
    return busy / sum(weights) / keepers


def rests(facts: Facts, now: datetime) -> str:
    """Why none is started for a while after one had to go; empty if one may be."""
    if facts.left_as is None or facts.left_at is None:
        return ""
    rest_s = rest_after_s(facts.left_as, facts.failures)
    if (now - facts.left_at).total_seconds() >= rest_s:
        return ""
    if facts.failures > 1 and facts.left_as in FAILURES:
        said = f" ({facts.left_why})" if facts.left_why else ""
        until = facts.left_at + timedelta(seconds=rest_s)
        return (
            f"warm workers failed {facts.failures} times in a row before they served a run{said}: the next one is tried"
            f" at {until.astimezone(UTC):%H:%M} UTC, or by kbslurm warm start"
        )
    match facts.left_as:
        case KeeperEnding.GAVE_BACK:
            what = "was given back to others"
        case KeeperEnding.CANCELLED:
            what = "was cancelled by somebody at the site"
        case KeeperEnding.PREEMPTED:
            what = "was preempted"
        case KeeperEnding.REFUSED:
            what = "was refused by the scheduler"
        case _:
            what = f"ended early ({facts.left_as.value.replace('_', ' ')})"
    return f"a warm worker {what} less than {span(rest_s)} ago"


def rest_after_s(left_as: KeeperEnding, failures: int) -> float:
    """For how long none is started after one left so, the last of so many failures in a row."""
    if left_as is KeeperEnding.CANCELLED:
        return TOLD_OFF_S
    if left_as not in FAILURES:
        return REST_S
    return min(LONGEST_REST_S, REST_S * 2.0 ** min(20, max(0, failures - 1)))


def load(facts: Facts) -> float:
    """How many GPUs what comes in keeps busy, by the last half hour."""
    return 0.0 if facts.run_s is None else facts.came * facts.run_s / HISTORY_S


def is_too_idle(warm: Warm, facts: Facts) -> bool:
    """Whether keepers left too much unused within a day. One idle end is always allowed: less says nothing yet."""
    return facts.idle_s > warm.idle_s and facts.idle_share > MOST_IDLE


def idle_left_s(warm: Warm, facts: Facts) -> float:
    """How much longer keepers may stay idle without the day's share becoming too large. Nearly one idle end a day is
    free: the first keeper has hardly held anything yet."""
    by_share = (LET_GO_AT * facts.held_s - facts.idle_s) / (1 - LET_GO_AT)
    return max(by_share, FREE_IDLE * warm.idle_s - facts.idle_s)


def _let_go(
    warm: Warm, facts: Facts, keepers: Sequence[Keeper], now: datetime
) -> Iterable[tuple[Keeper, KeeperEnding, str]]:
    """Those that must go: others wait, their node is left out, there are too many, or they idle for too long."""
    held = [one for one in keepers if one.state in OPEN_KEEPERS and one.drain_at is None]
    spare_s = idle_left_s(warm, facts)
    idle = sum(1 for one in held if one.state is KeeperState.HOLDING and not one.busy)
    for at, one in enumerate(held):
        if one.state is KeeperState.HOLDING and warm.give_back and one.others in ("yes", "unknown"):
            why = "others wait for these GPUs" if one.others == "yes" else "it can't be seen whether others wait"
            yield one, KeeperEnding.GAVE_BACK, f"{why}, so it is given back"
        elif one.node in facts.shunned:
            yield one, KeeperEnding.UNFIT, f"{one.node} is left out, since runs of several people failed there"
        elif at >= warm.max:
            yield one, KeeperEnding.DRAINED, f"the site's file allows {warm.max} at a time"
        elif one.state is KeeperState.HOLDING and not one.busy and not facts.waiting:
            idle_s = one.idle_for_s(now)
            if idle_s >= one.idle_s:
                yield one, KeeperEnding.IDLE, f"it had no work for {span(idle_s)}"
            elif idle_s >= BETWEEN_RUNS_S and spare_s < idle * BETWEEN_RUNS_S:
                yield one, KeeperEnding.IDLE, f"it had no work for {span(idle_s)}, and today's idle time is used up"
        elif one.state is KeeperState.SUBMITTED and not _still_worth(warm, facts, one, now):
            yield one, KeeperEnding.DRAINED, "the work that it was for is done"


def _still_worth(warm: Warm, facts: Facts, one: Keeper, now: datetime) -> bool:
    """Whether a keeper that hasn't started still has work to expect. One that a host asked for has."""
    young = (now - one.opened_at).total_seconds() < warm.idle_s
    return one.asked_by is not None or young or bool(facts.waiting + facts.sent) or load(facts) >= 1 - MOST_IDLE


def may_start(warm: Warm | None, facts: Facts, live: int, many: int, now: datetime) -> str | None:
    """Why a host may not start so many by hand now; None if they may. A host can say that work is coming, but not that
    the contract with the site doesn't hold."""
    if warm is None or warm.max < 1:
        return "the site's file allows none for this GPU type ([gpus.X.warm])"
    if live + many > warm.max:
        return f"the site's file allows {warm.max} at a time, and there {'is' if live == 1 else 'are'} {live}"
    if not is_open(warm.hours, now):
        return f"outside of the site's hours ({'; '.join(warm.hours)})"
    if is_too_idle(warm, facts):
        return wanted(warm, facts, now)[1]
    return None


def look_is_due(keepers: Sequence[Keeper], now: datetime) -> bool:
    """Whether to look if others wait: some time after the last look, and only while one holds a GPU."""
    holding = [one for one in keepers if one.state is KeeperState.HOLDING and one.started_at is not None]
    unknown_since = [at for one in holding if (at := one.looked_at or one.started_at) is not None]
    looked_at = [one.looked_at for one in keepers if one.looked_at is not None]
    if looked_at and (now - max(looked_at)).total_seconds() < LOOK_EVERY_S:
        return False
    return bool(unknown_since) and (now - min(unknown_since)).total_seconds() >= LOOK_EVERY_S


def beyond_s(start_s: float) -> float:
    """How much longer than the limit of a run the keeper that it is offered to must live. Its script refuses what it
    couldn't end in time by the same rule, but for the clocks: what was offered fits."""
    return start_s + END_S + CLOCKS_S


# ------------------------------------------------------------------------------------------------- cold or warm, by ETA


def warm_starts(keepers: Sequence[Keeper], facts: Facts, now: datetime, *, within_s: float | None) -> list[float]:
    """When keepers could start the next waiting runs, in seconds from now, soonest first: those that are free, those
    that will be, and those that are being started if it is known when. At most the waiting ones; `within_s`: none
    later than that."""
    run_s = max(1.0, facts.run_s or 0.0)
    found: list[float] = []
    for one in keepers:
        free_s = free_in_s(one, run_s, now)
        if free_s is None:
            continue
        left_s = one.life_s if one.ends_at is None else (one.ends_at - now).total_seconds()
        last_s = left_s - beyond_s(one.start_s) - run_s
        until_s = last_s if within_s is None else min(within_s, last_s)
        while free_s <= until_s and len(found) < 10_000:
            found.append(free_s)
            free_s += run_s + STARTS_WARM_S
            if len(found) > facts.waiting + len(keepers):
                break
    return sorted(found)[: facts.waiting]


def free_in_s(one: Keeper, run_s: float, now: datetime) -> float | None:
    """When this keeper can take a run, in seconds from now; None if that isn't known, or it takes none."""
    if one.drain_at is not None:
        return None
    match one.state:
        case KeeperState.HOLDING:
            return STARTS_WARM_S + (run_s / 2 if one.busy else 0.0)  # it is half done, on average
        case KeeperState.SUBMITTED if one.expected_at is not None:
            return max(0.0, (one.expected_at - now).total_seconds()) + STARTS_WARM_S
        case _:
            return None


def kept_for_warm(keepers: Sequence[Keeper], facts: Facts, cold_s: float | None, now: datetime) -> int:
    """How many of the waiting runs, the first ones, start earlier in a keeper than by a job of their own, which would
    start in `cold_s`; if that isn't known, as long as recent ones took. Those aren't sent by themselves."""
    known = facts.cold_s if cold_s is None else cold_s
    if known is None:
        return min(facts.waiting, sum(1 for one in keepers if one.room_s(now) > 0 and not one.busy))
    return len(warm_starts(keepers, facts, now, within_s=known))


# --------------------------------------------------------------------------------------------------------------- hours


def is_open(hours: Sequence[str], now: datetime) -> bool:
    """Whether a keeper may be started at this time."""
    return not hours or any(_covers(one, now) for one in hours)


def check_hours(text: str) -> None:
    """Refuse what isn't a period of the week: Invalid."""
    found = _HOURS.fullmatch(text.strip())
    if found is None:
        raise Invalid(f"{text!r} isn't a period of the day", hint=_HOURS_HINT)
    for word in ("from", "to"):
        hour, minute = map(int, found[word].split(":"))
        if minute > 59 or hour > 24 or (hour == 24 and (minute or word == "from")):
            raise Invalid(f"{found[word]!r} isn't a time of the day", hint=_HOURS_HINT)
    if found["from"] == found["to"]:
        raise Invalid(f"{text!r} begins and ends at the same time", hint=_HOURS_HINT)
    for day in re.split(r"[-,]", (found["days"] or "").lower()):
        if day and day not in _DAYS:
            raise Invalid(f"{day!r} isn't a day of the week", hint=f"Write {', '.join(_DAYS)}.")
    if found["zone"]:
        try:
            ZoneInfo(found["zone"])
        except (KeyError, ValueError, OSError):
            raise Invalid(f"{found['zone']!r} isn't a time zone", hint=_HOURS_HINT) from None


def _covers(text: str, now: datetime) -> bool:
    found = _HOURS.fullmatch(text.strip())
    assert found is not None, "checked when the site's file was read"
    here = now.astimezone(ZoneInfo(found["zone"]) if found["zone"] else UTC)
    days = _days(found["days"])
    begins, ends, at = _minute(found["from"]), _minute(found["to"]), _minute(f"{here:%H:%M}")
    if begins < ends:
        return here.weekday() in days and begins <= at < ends
    return (here.weekday() in days and at >= begins) or ((here.weekday() - 1) % 7 in days and at < ends)


def _minute(text: str) -> int:
    if text.startswith("24"):
        return 24 * 60
    at = time.fromisoformat(text.zfill(5))
    return at.hour * 60 + at.minute


def _days(text: str | None) -> frozenset[int]:
    if not text:
        return frozenset(range(7))
    found: set[int] = set()
    for part in text.lower().split(","):
        first, _, last = part.partition("-")
        day = _DAYS.index(first)
        found.add(day)
        while last and _DAYS[day] != last:
            day = (day + 1) % 7
            found.add(day)
    return frozenset(found)
