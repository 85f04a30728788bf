"""A week of a competition on a shared cluster, played with the rules that decide about warm workers.

The rules are the service's own (`kbslurm.domain.keepers`), called every ten seconds as the daemon calls them; people,
other users and Slurm's queue are drawn from a seed. `python -m tests.bench.warm_week --svg FILE` draws the week.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean, median

from kbslurm.domain.keepers import (
    DAY_S,
    HISTORY_S,
    Facts,
    Keeper,
    KeeperEnding,
    KeeperState,
    Warm,
    decided,
    kept_for_warm,
    look_is_due,
)
from kbslurm.domain.run import Handle, KeeperId, KeeperName

BEGINS = datetime(2026, 11, 23, tzinfo=UTC)  # a Monday; the deadline is at its end, on Sunday at midnight
WEEK_S = 7 * DAY_S
STEP_S = 10
GPUS = 4  # what we may use at a time
SLOTS = 8  # what may be open at a time
BASE_PER_S = 0.004
WARM_START_S = 0.4  # from free slot to the harness's first line
COLD_START_S = 4.0  # the same for a job of its own, besides its wait


@dataclass(kw_only=True)
class Run:
    """One run: when it was submitted, how long it takes, and how it went."""

    at: float
    takes_s: float
    sent_at: float | None = None
    may_start_at: float = 0.0
    started_at: float | None = None
    warm: bool = False


@dataclass(kw_only=True)
class Held:
    """One keeper: the value that the rules see, and what the play knows beside it."""

    keeper: Keeper
    may_start_at: float
    free_at: float = 0.0
    busy_s: float = 0.0
    ended_at: float | None = None
    ending: KeeperEnding | None = None
    runs: list[tuple[float, float]] = field(default_factory=list)


@dataclass(kw_only=True)
class Hour:
    """What one hour came to, in GPU-seconds."""

    submitted: int = 0
    held_s: float = 0.0
    used_s: float = 0.0
    others_waited: bool = False


@dataclass(kw_only=True)
class Week:
    """What a week came to."""

    runs: list[Run]
    keepers: list[Held]
    hours: list[Hour]
    looks: list[float]
    blocked_s: float

    def waits(self, *, warm: bool | None = None, since_s: float = 0.0) -> list[float]:
        """How long runs waited, from acceptance to the harness, in seconds."""
        return sorted(
            run.started_at - run.at
            for run in self.runs
            if run.started_at is not None and run.at >= since_s and (warm is None or run.warm is warm)
        )

    @property
    def held_s(self) -> float:
        return sum(hour.held_s for hour in self.hours)

    @property
    def idle_s(self) -> float:
        return self.held_s - sum(hour.used_s for hour in self.hours)

    def worst_share(self, idle_s: float) -> float:
        """The largest idle share of any 24 hours in which more than one idle end was left."""
        return max((idle / held for held, idle in self.days() if idle > idle_s), default=0.0)

    def days(self) -> list[tuple[float, float]]:
        """Held and idle GPU-seconds of every 24 hours that end at a full hour."""
        return [
            (sum(h.held_s for h in part), sum(h.held_s - h.used_s for h in part))
            for end in range(24, len(self.hours) + 1)
            for part in (self.hours[end - 24 : end],)
        ]


def rate_per_s(at: float) -> float:
    """How many runs are submitted: nights are quiet, evenings aren't, and it doubles each day before the deadline."""
    hour, day = at / 3_600 % 24, at / DAY_S
    daily = max(0.05, math.sin((hour - 8) / 16 * math.pi)) if hour >= 8 else 0.05
    evening = 1.5 if 18 <= hour < 24 else 1.0
    last = 4.0 if at > WEEK_S - 6 * 3_600 else 1.0
    return float(BASE_PER_S * daily * evening * last * 1.35**day)


def arrivals(draw: random.Random) -> Iterator[Run]:
    """A Poisson process with this rate; three of four runs are tests of some seconds."""
    most, at = BASE_PER_S * 1.5 * 4.0 * 1.35**7, 0.0
    while (at := at + draw.expovariate(most)) < WEEK_S:
        if draw.random() < rate_per_s(at) / most:
            short = draw.random() < 0.75
            takes_s = draw.lognormvariate(math.log(9.0 if short else 45.0), 0.5)
            yield Run(at=at, takes_s=min(300.0, takes_s))


def others(draw: random.Random) -> list[bool]:
    """For every ten seconds whether other people's jobs wait: long spells, mostly by day and on working days."""
    found, waits, left = list[bool](), False, 0
    for step in range(int(WEEK_S / STEP_S) + 1):
        hour, day = step * STEP_S / 3_600 % 24, int(step * STEP_S / DAY_S)
        if left <= 0:
            crowded = 0.65 if 9 <= hour < 19 and day < 5 else 0.15
            waits = draw.random() < crowded
            left = int(draw.expovariate(1 / (2_400 if waits else 3_600)) / STEP_S) + 1
        left -= 1
        found.append(waits)
    return found


def play(warm: Warm, *, seed: int = 1, hidden: bool = False) -> Week:
    """Play the week. `hidden`: other people's jobs can't be seen."""
    draw, luck = random.Random(seed), random.Random(seed + 1)
    todo, crowd = deque(arrivals(draw)), others(draw)
    queue: deque[Run] = deque()
    sent: list[Run] = []
    cold: list[Run] = []
    came: deque[float] = deque()
    took: deque[float] = deque(maxlen=60)
    waited: deque[tuple[float, float]] = deque(maxlen=20)
    week = Week(runs=[*todo], keepers=[], hours=[Hour() for _ in range(7 * 24)], looks=[], blocked_s=0.0)
    left: tuple[KeeperEnding, datetime] | None = None
    recent: list[Held] = []
    held_s = idle_s = 0.0
    for step in range(int(WEEK_S / STEP_S)):
        at = float(step * STEP_S)
        now, hour, crowded = BEGINS + timedelta(seconds=at), week.hours[int(at // 3_600)], crowd[step]
        hour.others_waited |= crowded
        while todo and todo[0].at <= at:
            queue.append(todo.popleft())
            came.append(queue[-1].at)
            hour.submitted += 1
        while came and came[0] < at - HISTORY_S:
            came.popleft()
        live = [one for one in recent if one.ended_at is None]
        for one in live:
            _go_on(one, at, now, warm)
            if one.ended_at is not None and one.ending in (KeeperEnding.GAVE_BACK, KeeperEnding.PREEMPTED):
                left = one.ending, now
        live = [one for one in live if one.ended_at is None]
        cold = [run for run in cold if run.started_at is not None and run.started_at + run.takes_s > at]
        holding = [one for one in live if one.keeper.started_at is not None]
        room = GPUS - len(cold) - len(holding)
        for run in [run for run in sent if run.may_start_at <= at][: max(0, room)]:
            at_once = run.may_start_at > at - 2 * STEP_S  # else it waited for one of our own
            run.started_at = (run.may_start_at if at_once else at) + COLD_START_S
            waited.append((at, run.started_at - (run.sent_at or at)))
            took.append(run.takes_s)
            cold.append(run)
            sent.remove(run)
            room -= 1
        for one in live:
            if one.keeper.started_at is None and one.may_start_at <= at and room > 0:
                room -= 1
                one.free_at = at
                one.keeper = replace(one.keeper, state=KeeperState.HOLDING, started_at=now, free_since=now, node="n1")
        if step % 6 == 0 or any(one.drain_at is None for one in (held.keeper for held in live)):
            recent = [one for one in recent if one.ended_at is None or one.ended_at > at - DAY_S]
            held_s, idle_s = _day(recent, at)
        facts = Facts(
            waiting=len(queue),
            sent=len(sent),
            run_s=fmean(took) if len(took) >= 3 else None,
            came=len(came),
            held_s=held_s,
            idle_s=idle_s,
            cold_s=median(lately) if (lately := [s for then, s in waited if then > at - 600]) else None,
            left_as=left[0] if left else None,
            left_at=left[1] if left else None,
        )
        keepers = [one.keeper for one in live]
        if look_is_due(keepers, now) and warm.give_back:
            week.looks.append(at)
            said = "unknown" if hidden else "yes" if crowded else "no"
            for one in live:
                if one.keeper.state is KeeperState.HOLDING:
                    one.keeper = replace(one.keeper, looked_at=now, others=said)
        open_now = len(cold) + len(sent)
        found = decided(warm, facts, [one.keeper for one in live], max(0, SLOTS - open_now - len(live)), now)
        for keeper, ending, why in found.drain:
            (one,) = [one for one in live if one.keeper.id == keeper.id]
            state = KeeperState.DRAINING if keeper.started_at else keeper.state
            one.keeper = replace(one.keeper, drain_at=now, drain_as=ending, drain_why=why, state=state)
        for _ in range(found.open):
            week.keepers.append(_ordered(len(week.keepers) + 1, warm, at, now, _wait_s(luck, crowded)))
            recent.append(week.keepers[-1])
        if "no new one" in found.why:
            week.blocked_s += STEP_S
        live = [one for one in recent if one.ended_at is None]
        _serve(live, queue, took, at)
        keepers = [one.keeper for one in live]
        facts = replace(facts, waiting=len(queue))
        kept = kept_for_warm(keepers, facts, None, now) if keepers else 0
        free = SLOTS - open_now - len(keepers)
        for run in list(queue)[kept : kept + max(0, free)]:
            queue.remove(run)
            run.sent_at = max(run.at, at - STEP_S)  # the daemon is woken by what arrives
            run.may_start_at = run.sent_at + _wait_s(luck, crowded)
            sent.append(run)
    end = float(WEEK_S)
    for one in week.keepers:
        if one.ended_at is None:
            one.ended_at, one.ending = end, KeeperEnding.DRAINED
        _count(week.hours, one)
    return week


def _wait_s(luck: random.Random, crowded: bool) -> float:
    """How long Slurm lets a job wait."""
    return luck.expovariate(1 / 240.0) if crowded else luck.uniform(0.5, 3.0)


def _ordered(number: int, warm: Warm, at: float, now: datetime, wait_s: float) -> Held:
    return Held(
        keeper=Keeper(
            id=KeeperId(number),
            name=KeeperName(f"kbk-{number}"),
            backend="cluster",
            gpu="H100",
            state=KeeperState.SUBMITTED,
            handle=Handle(str(number)),
            opened_at=now,
            life_s=warm.life_s,
            idle_s=warm.idle_s,
            expected_at=now + timedelta(seconds=wait_s),
        ),
        may_start_at=at + wait_s,
    )


def _go_on(one: Held, at: float, now: datetime, warm: Warm) -> None:
    """A run in it may have ended; one that was let go leaves once it is free, and each at the end of its life."""
    keeper = one.keeper
    if keeper.started_at is None:
        if keeper.drain_at is not None:
            one.ended_at, one.ending = at, keeper.drain_as
        return
    busy = one.free_at > at
    if keeper.busy and not busy:
        free_since = BEGINS + timedelta(seconds=one.free_at)
        one.keeper = keeper = replace(keeper, busy=False, free_since=free_since, served=keeper.served + 1)
    if busy:
        return
    idle_s = keeper.idle_for_s(now)
    if keeper.drain_at is not None:
        one.ended_at, one.ending = at, keeper.drain_as
    elif idle_s >= warm.idle_s:
        one.ended_at, one.ending = at, KeeperEnding.IDLE
    elif keeper.room_s(now) <= 0:
        one.ended_at, one.ending = at, KeeperEnding.LIFE


def _serve(keepers: Sequence[Held], queue: deque[Run], took: deque[float], at: float) -> None:
    """Free keepers take the first runs of the queue, several within a step if they are short."""
    now = BEGINS + timedelta(seconds=at)
    for one in keepers:
        if one.ended_at is not None or one.keeper.room_s(now) <= 0:
            continue
        while queue and one.free_at < at + STEP_S:
            if one.keeper.busy and one.free_at <= at:
                one.keeper = replace(one.keeper, busy=False, served=one.keeper.served + 1)
            run = queue.popleft()
            starts = max(run.at, one.free_at, at - STEP_S) + WARM_START_S
            run.started_at, run.warm, run.sent_at = starts, True, starts
            one.free_at = starts + run.takes_s
            one.runs.append((starts, one.free_at))
            one.keeper = replace(one.keeper, busy=True)
            took.append(run.takes_s)


def _day(keepers: Sequence[Held], at: float) -> tuple[float, float]:
    """Held and idle within the last 24 hours."""
    since, held_s, used_s = at - DAY_S, 0.0, 0.0
    for one in keepers:
        if one.keeper.started_at is None or (one.ended_at is not None and one.ended_at <= since):
            continue
        began = (one.keeper.started_at - BEGINS).total_seconds()
        until = at if one.ended_at is None else one.ended_at
        held_s += max(0.0, until - max(since, began))
        used_s += sum(max(0.0, min(at, b) - max(since, a)) for a, b in one.runs if b > since)
    return held_s, max(0.0, held_s - used_s)


def _count(hours: list[Hour], one: Held) -> None:
    if one.keeper.started_at is None or one.ended_at is None:
        return
    began = (one.keeper.started_at - BEGINS).total_seconds()
    for at, hour in enumerate(hours):
        low, high = at * 3_600.0, (at + 1) * 3_600.0
        hour.held_s += max(0.0, min(high, one.ended_at) - max(low, began))
        hour.used_s += sum(max(0.0, min(high, b, one.ended_at) - max(low, a)) for a, b in one.runs)


def quantile(values: Sequence[float], share: float) -> float:
    """The value at this share of a sorted list."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else math.nan


def in_words(name: str, week: Week) -> str:
    """The week in one line."""
    all_, last = week.waits(), week.waits(since_s=WEEK_S - 6 * 3_600)
    share = week.idle_s / week.held_s if week.held_s else 0.0
    worst = week.worst_share(300.0)
    warm = sum(run.warm for run in week.runs)
    return (
        f"{name}: {len(week.runs)} runs, {warm} warm; wait p50 {quantile(all_, 0.5):.1f} s, p95"
        f" {quantile(all_, 0.95):.0f} s; last evening {quantile(last, 0.5):.1f} s and {quantile(last, 0.95):.0f} s;"
        f" {len(week.keepers)} warm workers held {week.held_s / 3_600:.1f} GPU-h, idle {share:.1%}, worst 24 h"
        f" {worst:.1%}, blocked {week.blocked_s / 3_600:.1f} h; {len(week.looks)} looks"
    )


def svg(week: Week, cold: Week) -> str:
    """The week as a figure: what was held and used by hour, over how long runs waited."""
    width, height, left, top = 900, 330, 56, 30
    step = (width - left - 10) / len(week.hours)
    most = max(1.0, *(hour.held_s / 3_600 for hour in week.hours))
    floor = top + 130

    def bar(at: int, amount: float, colour: str) -> str:
        tall = 130 * amount / most
        where = f'x="{left + at * step:.1f}" y="{floor - tall:.1f}" width="{step:.2f}" height="{tall:.1f}"'
        return f'<rect {where} fill="{colour}"/>'

    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            ' font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="18">GPUs held: used by runs (green), idle (orange); others wait (grey)</text>',
    ]
    for at, hour in enumerate(week.hours):
        if hour.others_waited:
            parts.append(f'<rect x="{left + at * step:.1f}" y="{top}" width="{step:.2f}" height="130" fill="#eee"/>')
    for at, hour in enumerate(week.hours):
        if hour.held_s:
            parts.append(bar(at, hour.held_s / 3_600, "#e8912d"))
            parts.append(bar(at, hour.used_s / 3_600, "#3a9a5b"))
    parts.append(f'<text x="8" y="{top + 10}">{most:.1f}</text><text x="8" y="{floor}">0</text>')
    low, high = top + 170, top + 270
    parts.append(
        f'<text x="{left}" y="{low - 12}">Median wait from submit to start, by hour: without (grey) and with (blue)'
        " warm workers; logarithmic, 0.3 s to 30 min</text>"
    )
    for one, colour in ((cold, "#999"), (week, "#2b6cb0")):
        points = []
        for at in range(len(week.hours)):
            waits = sorted(
                r.started_at - r.at for r in one.runs if r.started_at and at * 3_600 <= r.at < at * 3_600 + 3_600
            )
            if waits:
                tall = math.log(max(0.3, waits[len(waits) // 2]) / 0.3) / math.log(1_800 / 0.3)
                points.append(f"{left + (at + 0.5) * step:.1f},{high - 100 * min(1.0, tall):.1f}")
        parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    parts.append(f'<text x="8" y="{low + 8}">30 min</text><text x="8" y="{high}">0.3 s</text>')
    for day, name in enumerate(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")):
        parts.append(f'<text x="{left + day * 24 * step + 4:.0f}" y="{high + 20}">{name}</text>')
        for up, down in ((top, floor), (low, high)):
            line = left + day * 24 * step
            parts.append(f'<line x1="{line:.1f}" y1="{up}" x2="{line:.1f}" y2="{down}" stroke="#ccc"/>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--svg", type=Path, help="write the figure here")
    reader.add_argument("--seed", type=int, default=1)
    asked = reader.parse_args()
    cold, week = play(Warm(max=0), seed=asked.seed), play(Warm(max=2), seed=asked.seed)
    print(in_words("cold", cold))
    print(in_words("warm, max = 2", week))
    print(in_words("the same, others hidden", play(Warm(max=2), seed=asked.seed, hidden=True)))
    if asked.svg:
        asked.svg.write_text(svg(week, cold), encoding="utf-8")


if __name__ == "__main__":
    main()
