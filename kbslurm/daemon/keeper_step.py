"""The keeper step of a tick: how many keepers there should be, which go, and what that means for the free slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from kbslurm.daemon.clock import NEVER
from kbslurm.daemon.lane import Lane
from kbslurm.domain.keepers import Decision, Facts, Keeper, KeeperEnding, KeeperState, Warm, decided
from kbslurm.domain.run import OpenAttempt, Slot
from kbslurm.domain.warm_slots import Spot, with_keepers
from kbslurm.observe.crash_points import crash_point
from kbslurm.observe.logs import teller
from kbslurm.observe.metrics import Metrics
from kbslurm.ports import KeepsWarm, Store

tell = teller("keepers")

DECIDE_EVERY_S = 10.0
LOOK_FOR_LEFT_S = 60.0  # without a warm place, how often we look for keepers that an earlier configuration left


class KeeperStep:
    """Starts keepers and lets them go, by the sites' rules. Where no site allows any, it costs one read a minute."""

    def __init__(self, store: Store, lanes: Mapping[str, Lane], metrics: Metrics) -> None:
        self.store, self.lanes, self.metrics = store, lanes, metrics
        self.warm: dict[Spot, Warm] = {}
        self._closed: Mapping[Spot, str] = {}
        self.know({})
        self.known: Sequence[Keeper] = ()
        self._facts: dict[Spot, Facts] = {}
        self._told: dict[Spot, Decision] = {}
        self._kept: dict[Spot, int] = {}
        self._decide_at: dict[Spot, datetime] = {}
        self._look_at = NEVER

    def know(self, closed: Mapping[Spot, str]) -> None:
        """The places as they are now. `closed`: those that start no keeper and keep none, and why."""
        self._closed = closed
        self.warm = {
            (name, gpu): warm
            for name, lane in self.lanes.items()
            if isinstance(lane.place.backend, KeepsWarm)
            for gpu, warm in lane.place.warm.items()
            if (name, gpu) not in closed
        }

    def keep_time(self) -> None:
        """After the clock was set back, everything is due now."""
        self._decide_at, self._look_at = {}, NEVER

    def open(self, now: datetime) -> Sequence[Keeper]:
        """The open keepers."""
        if self.warm or self.known or now >= self._look_at:
            self._look_at = now + timedelta(seconds=LOOK_FOR_LEFT_S)
            self._read()
        return self.known

    def by_place(self) -> Mapping[str, list[Keeper]]:
        """The open keepers of each place that this daemon knows."""
        return {name: [one for one in self.known if one.backend == name] for name in self.lanes}

    def before_claims(self, resting: Mapping[str, Lane], attempts: Sequence[OpenAttempt], now: datetime) -> None:
        """Start keepers and let them go. Only for places that are at rest: what a busy one does isn't in the rows."""
        self._take_up(resting, now)
        due = [spot for spot in self.warm if spot[0] in resting and self._is_due(spot, attempts, now)]
        for spot in due:
            self._decide(spot, resting[spot[0]], attempts, now)
        self._drain_unwanted(now)
        if due:
            self._read()

    def _is_due(self, spot: Spot, attempts: Sequence[OpenAttempt], now: datetime) -> bool:
        """Whether it is time again, or there is room for a keeper that found none."""
        if now >= self._decide_at.get(spot, NEVER):
            return True
        return self._spared(spot) > 0 and self._room(spot, attempts) > 0

    def _spared(self, spot: Spot) -> int:
        return self._told[spot].spare if spot in self._told else 0

    def _room(self, spot: Spot, attempts: Sequence[OpenAttempt]) -> int:
        """How many more jobs may be open there. The site's file leaves at least one slot to runs that mustn't go into a
        keeper."""
        backend, gpu = spot
        cold = sum(a.gpus for a in attempts if (a.backend, a.gpu) == spot and a.keeper is None)
        held = sum((one.backend, one.gpu) == spot for one in self.known)
        return max(0, self.lanes[backend].place.backend.capacity().get(gpu, 0) - cold - held)

    def _decide(self, spot: Spot, lane: Lane, attempts: Sequence[OpenAttempt], now: datetime) -> None:
        backend, gpu = spot
        warm = self.warm[spot]
        self._decide_at[spot] = now + timedelta(seconds=DECIDE_EVERY_S)
        mine = [one for one in self.known if (one.backend, one.gpu) == spot]
        facts = self._facts[spot] = self.store.keepers.facts(backend, gpu, now)
        self._measure(spot, facts)
        found = decided(warm, facts, mine, self._room(spot, attempts), now)
        for keeper, ending, why in found.drain:
            crash_point("keeper.before_drain")
            if self.store.keepers.drain(keeper.id, ending, why, now):
                self.metrics.let_go.labels(backend, gpu, ending).inc()
                tell("let go", keeper=keeper.name, backend=backend, gpu=gpu, ending=ending, why=why)
        if lane.troubles:
            found = replace(found, open=0, spare=0)
        self._told[spot] = found
        for _ in range(found.open):
            crash_point("keeper.before_order")
            made = self.store.keepers.order(
                backend, gpu, life_s=warm.life_s, idle_s=warm.idle_s, most=warm.max, why=found.why, now=now
            )
            crash_point("keeper.after_order")
            if made is not None:
                self._ordered(lane, made, now)

    def offered(
        self, slots: Sequence[Slot], resting: Mapping[str, Lane], attempts: Sequence[OpenAttempt], now: datetime
    ) -> list[Slot]:
        """The free slots and those of free keepers, without the runs that start earlier in a keeper."""
        slots = self._without_spared(slots)
        mine = [one for one in self.known if one.backend in resting]
        if not any(one.drain_at is None for one in mine):
            self._kept = {}
            return list(slots)
        facts = {
            spot: self.store.keepers.facts(*spot, now)
            for spot in {(one.backend, one.gpu) for one in mine if one.drain_at is None}
        }
        self._facts |= facts
        cold_s = {
            (name, gpu): (start.at - now).total_seconds()
            for name, lane in resting.items()
            for gpu, start in lane.expects(attempts, now).items()
        }
        found = with_keepers(
            slots,
            mine,
            facts,
            cold_s,
            now,
            staff_only=[name for name, lane in resting.items() if not lane.place.untrusted],
        )
        self._kept = {(slot.backend, slot.gpu): slot.skip for slot in found if slot.skip}
        return found

    def _without_spared(self, slots: Sequence[Slot]) -> list[Slot]:
        """Leave out what is left free for keepers: else the next run takes each slot as soon as it is free, and a
        keeper finds none as long as there is work for it."""
        kept = [replace(slot, free=slot.free - self._spared((slot.backend, slot.gpu))) for slot in slots]
        return [slot for slot in kept if slot.free > 0]

    def wakes_at(self, now: datetime) -> datetime | None:
        """When it next has something to decide, if nothing else happens. A lane that is busy wakes by itself."""
        if not self.known:
            return None
        idle = [spot for spot in self.warm if not self.lanes[spot[0]].busy]
        return min((max(self._decide_at.get(spot, NEVER), self.lanes[spot[0]].ready_at) for spot in idle), default=None)

    def told(self) -> list[dict[str, Any]]:
        """Each GPU type for which a site allows keepers, for the leader's published state."""
        return [
            {
                "backend": backend,
                "gpu": gpu,
                "most": warm.max,
                "idle_s": warm.idle_s,
                "life_s": warm.life_s,
                "open": sum((one.backend, one.gpu) == (backend, gpu) for one in self.known),
                "why": self._told[backend, gpu].why if (backend, gpu) in self._told else "",
                "idle_share": facts.idle_share,
                "held_s": facts.held_s,
                "idle_day_s": facts.idle_s,
                "cold_s": facts.cold_s,
                "run_s": facts.run_s,
                "kept": self._kept.get((backend, gpu), 0),
            }
            for (backend, gpu), warm in self.warm.items()
            for facts in (self._facts.get((backend, gpu), Facts()),)
        ]

    def _read(self) -> None:
        """The open keepers, with what their places say of how long a run takes to start."""
        self.known = [
            replace(one, start_s=self.lanes[one.backend].place.start_s) if one.backend in self.lanes else one
            for one in self.store.keepers.open()
        ]

    def _measure(self, spot: Spot, facts: Facts) -> None:
        self.metrics.idle_share.labels(*spot).set(facts.idle_share)
        self.metrics.held_s.labels(*spot, "idle").set(facts.idle_s)
        self.metrics.held_s.labels(*spot, "runs").set(facts.held_s - facts.idle_s)

    def _take_up(self, resting: Mapping[str, Lane], now: datetime) -> None:
        """What hosts asked for is sent like what the policy wants."""
        for one in self.known:
            lane = resting.get(one.backend)
            if lane is None or one.state is not KeeperState.ASKED or (one.backend, one.gpu) in self._closed:
                continue
            if self.store.keepers.accept(one, now):
                self._ordered(lane, one, now)

    def _ordered(self, lane: Lane, keeper: Keeper, now: datetime) -> None:
        lane.keeper_notes.unsent[keeper.id] = now
        self.metrics.ordered.labels(keeper.backend, keeper.gpu).inc()
        tell("ordered", keeper=keeper.name, backend=keeper.backend, gpu=keeper.gpu, why=keeper.why)

    def _drain_unwanted(self, now: datetime) -> None:
        """Those that the sites' files no longer allow at all, and those of places that drain."""
        for one in self.known:
            spot = (one.backend, one.gpu)
            if one.backend in self.lanes and spot not in self.warm and one.drain_at is None:
                why = self._closed.get(spot, "the site's file allows none any more")
                self.store.keepers.drain(one.id, KeeperEnding.DRAINED, why, now)
