"""The placement step of a tick: which free slots are offered, which runs come home, and which places are paused."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from kbslurm.daemon.clock import NEVER
from kbslurm.daemon.lane import Lane
from kbslurm.daemon.timing import Timing
from kbslurm.domain import breaker as breakers
from kbslurm.domain import drains, placement
from kbslurm.domain.breaker import CLOSED, Breaker
from kbslurm.domain.drains import BY_FILE, LEFT, MOVES, Drain
from kbslurm.domain.drift import coin
from kbslurm.domain.keepers import Keeper
from kbslurm.domain.placement import Backlog, Plan, Planned, Rules
from kbslurm.domain.run import OpenAttempt, Slot
from kbslurm.flow.place import Place
from kbslurm.flow.queue import free_slots
from kbslurm.observe.crash_points import crash_point
from kbslurm.observe.logs import teller
from kbslurm.ports import Foresees, Store

tell = teller("daemon")


class PlacementStep:
    """Applies the hosts' placement rules in each tick. Without rules, every free slot is offered."""

    def __init__(self, store: Store, lanes: Mapping[str, Lane], rules: Rules, timing: Timing) -> None:
        self.store, self.lanes, self.rules, self.timing = store, lanes, rules, timing
        self._shadow_at = NEVER
        self._breakers: dict[str, Breaker] = {}
        self._planned = Plan(slots=(), why={})
        self._backlog = Backlog()
        self._drains: Sequence[Drain] = ()
        self._knows_drains = False
        self.has_policy = False
        self._board_classes: Mapping[str, str] = {}
        self.know(rules, timing)

    def know(self, rules: Rules, timing: Timing) -> None:
        """The rules and places as they are now."""
        had, places = self.has_policy, [lane.place.for_policy() for lane in self.lanes.values()]
        self.rules, self.timing = rules, timing
        self.has_policy = placement.needs_policy(places, rules)
        self._board_classes = {
            gpu: placement.board_class(gpu, places, rules) for place in places for gpu in place.slots
        }
        if self.has_policy and not had:
            self._planned, self._backlog = Plan(slots=(), why={}), Backlog()

    def stored_breaker(self, name: str) -> Breaker:
        """The breaker that the last leader stored for a place that is new here."""
        if self.has_policy:
            self._breakers = dict(self.store.places.breakers())
        return self._breakers.get(name, CLOSED)

    def read_drains(self) -> bool:
        """Read which places drain; whether that has changed."""
        before, self._drains = self._drains, self.store.places.drains()
        knew, self._knows_drains = self._knows_drains, True
        if before == self._drains:
            return False
        for one in self._drains:
            if knew and one not in before:
                tell("draining", backend=one.place, gpu=one.gpu or "all", why=one.why)
        for one in before:
            if not any((one.place, one.gpu) == (now.place, now.gpu) for now in self._drains):
                tell("resumed", backend=one.place, gpu=one.gpu or "all")
        return True

    def draining(self, lane: Lane) -> Mapping[str, Drain]:
        """The GPU types of a place for which it drains: hosts want it so, or the configuration."""
        gpus = list(lane.place.backend.capacity())
        if lane.leaving or (lane.changed is not None and lane.changed.home != lane.place.home):
            why = LEFT if lane.leaving else MOVES
            return dict.fromkeys(gpus, Drain(place=lane.place.name, gpu="", by=BY_FILE, why=why, at=lane.changed_at))
        return drains.draining(self._drains, lane.place.name, gpus)

    def draining_told(self, lane: Lane) -> dict[str, Any]:
        """The same as JSON."""
        return {gpu: one.told() for gpu, one in self.draining(lane).items()}

    def take_over(self, before: Mapping[str, Any]) -> None:
        """Start with the breakers stored by the last leader. `before`: what a previous process, of which this one is
        the continuation, said of each place: failures in a row are counted on."""
        self._breakers = dict(self.store.places.breakers()) if self.has_policy else {}
        for name, lane in self.lanes.items():
            if not lane.busy:
                lane.forget()
                lane.breaker = self._breakers.get(name, CLOSED)
                lane.go_on_from(before.get(name, {}))

    def keep_time(self) -> None:
        """After the clock was set back, everything is due now."""
        self._shadow_at = NEVER

    def before_claims(
        self,
        resting: Mapping[str, Lane],
        attempts: Sequence[OpenAttempt],
        now: datetime,
        *,
        keepers: Sequence[Keeper] = (),
    ) -> Sequence[OpenAttempt]:
        """Update the breakers, withdraw what home could run, order shadows. Returns the open attempts afterwards."""
        if self.has_policy:
            self._move_breakers(now)
            attempts = self._bring_home(resting, attempts, now, keepers)
        self._shadow(now)
        return attempts

    def offered(self, slots: Sequence[Slot], attempts: Sequence[OpenAttempt], now: datetime) -> list[Slot]:
        """The free slots that may be claimed now. None of a place that drains, whatever the policy says."""
        drained = {(name, gpu) for name, lane in self.lanes.items() for gpu in self.draining(lane)}
        slots = [slot for slot in slots if (slot.backend, slot.gpu) not in drained]
        return list(self._plan(slots, attempts, now).slots) if self.has_policy else list(slots)

    def claim_rules(self) -> Rules | None:
        """The rules that a claim must also follow."""
        return self.rules if self.has_policy else None

    def gives_back(self, lane: Lane) -> bool:
        """Whether runs certainly not sent to this place go elsewhere: it is down, and there is another place."""
        return self.has_policy and lane.breaker.state is breakers.State.OPEN and self._has_others(lane.place)

    def tries_at(self, lane: Lane) -> datetime | None:
        """When a paused place is tested again."""
        return lane.breaker.try_at if self.has_policy and not lane.busy else None

    def told(self) -> dict[str, Any]:
        """The state of overflow, for the leader's published state."""
        return {
            "rule": str(self.rules.overflow) if self.has_policy else "",
            "other_class": self.rules.other_class,
            "currency": self.rules.budget.currency,
            "boards": {board: list(places) for board, places in self.rules.boards.items()},
            "classes": self._board_classes if self.has_policy else {},
            "gpus": dict(self._planned.why),
            "held_up": dict(self._planned.held_up),
            "held_boards": {gpu: dict(boards) for gpu, boards in self._planned.held_boards.items()},
            "held_teams": {gpu: dict(teams) for gpu, teams in self._planned.held_teams.items()},
            "budget": placement.budget_told(self.rules.budget, self._backlog),
        }

    def _place_views(self) -> list[placement.PlaceView]:
        return [
            lane.place.for_policy(lane.breaker, {gpu: one.why for gpu, one in self.draining(lane).items()})
            for lane in self.lanes.values()
        ]

    def _has_others(self, place: Place) -> bool:
        """Whether this place's runs may go to another."""
        return any(
            other.place is not place
            and (set(other.place.backend.capacity()) - set(self.draining(other))) & set(place.backend.capacity())
            and (other.place.role == "home" or self.rules.overflow.when != "never")
            for other in self.lanes.values()
        )

    def _plan(self, slots: Sequence[Slot], attempts: Sequence[OpenAttempt], now: datetime) -> Plan:
        """Which of the free slots are offered now. Other open attempts count too: a busy lane's slots are in use."""
        backlog = self.store.queue.demand(now)
        starts = self._starts(attempts, now)
        asked = self._asks_ahead(slots, backlog, starts, now)
        slots = [slot for slot in slots if (slot.backend, slot.gpu) not in asked]
        plan = placement.planned(slots, self._place_views(), self.rules, backlog, attempts, now, starts=starts)
        self._planned, self._backlog = plan, backlog
        return plan

    def _starts(
        self, attempts: Sequence[OpenAttempt], now: datetime, *, last: bool = False
    ) -> Mapping[tuple[str, str], Planned]:
        """Home places' predictions of when they start our jobs, by place and GPU type."""
        return {
            (name, gpu): start
            for name, lane in self.lanes.items()
            if lane.place.role == "home"
            for gpu, start in lane.expects(attempts, now, last=last).items()
        }

    def _asks_ahead(
        self, slots: Sequence[Slot], backlog: Backlog, starts: Mapping[tuple[str, str], Planned], now: datetime
    ) -> set[tuple[str, str]]:
        """The free slots whose place is first asked when it would start the next run. That is worth a call if the rule
        depends on waiting times, a run is about to be sent, another place could take it, and there is no prediction
        yet."""
        if self.rules.overflow.when != "when_wait_over":
            return set()
        others = {
            gpu
            for lane in self.lanes.values()
            if lane.place.role == "overflow" and lane.breaker.state is not breakers.State.OPEN
            for gpu in lane.place.backend.capacity()
        }
        found: set[tuple[str, str]] = set()
        for slot in slots:
            lane = self.lanes[slot.backend]
            waits = slot.gpu in backlog.demand and backlog.demand[slot.gpu].waiting > 0
            works = lane.place.role == "home" and lane.breaker.state is breakers.State.CLOSED and not lane.troubles
            seen = lane.foreseen.get(slot.gpu)
            known = (slot.backend, slot.gpu) in starts or (seen is not None and seen.holds(now))
            can_say = isinstance(lane.place.backend, Foresees)
            if works and slot.gpu in others and not known and can_say:
                # With an empty queue nothing is asked; a run that arrives before the claim waits for the next tick,
                # which asks.
                lane.foresee = (*lane.foresee, slot.gpu) if waits else lane.foresee
                found.add((slot.backend, slot.gpu))
        return found

    def _move_breakers(self, now: datetime) -> None:
        """Update the breakers from run outcomes, and store each change for the next process."""
        outcomes = self.store.places.outcomes(now)
        for name, lane in self.lanes.items():
            if not lane.busy:
                known = outcomes.get(name, breakers.Outcomes())
                lane.breaker = breakers.looked(lane.breaker, known, now, first_s=self.timing.breaker_s)
            if lane.breaker != self._breakers.get(name, CLOSED):
                found = lane.breaker
                crash_point("breaker.before_commit")
                self.store.places.keep_breaker(name, found)
                crash_point("breaker.after_commit")
                if found.state is not self._breakers.get(name, CLOSED).state:
                    tell("breaker", backend=name, state=found.state, why=found.why, try_at=found.try_at)
                self._breakers[name] = found

    def _shadow(self, now: datetime) -> None:
        """Have some of the runs ranked at home measured elsewhere too, as many as the hosts want."""
        if self.rules.shadow <= 0 or now < self._shadow_at:
            return
        self._shadow_at = now + timedelta(seconds=self.timing.shadow_s)
        found = self.store.shadows.candidates(now)
        backlog, places = (self.store.queue.demand(now) if found else Backlog()), self._place_views()
        for one in found:
            warm = one.warm and coin(one.run) < self.rules.shadow
            place = one.backend if warm else placement.shadow_at(one, places, self.rules, backlog)
            if place is not None and self.store.shadows.order_once(one, place, now, cold=warm):
                backlog = dataclasses.replace(backlog, pinned=backlog.pinned | {place})
                tell("shadowed", run=one.run, backend=place)

    def _bring_home(
        self, resting: Mapping[str, Lane], attempts: Sequence[OpenAttempt], now: datetime, keepers: Sequence[Keeper]
    ) -> Sequence[OpenAttempt]:
        """Withdraw attempts that wait elsewhere if home has room for them: they are cancelled there.

        Not if home said that it starts nothing soon, which is why they went. Its last prediction holds until its time
        is near, or until the next run has it asked again.
        """
        if not any(self._is_away(one) and placement.movable(one) for one in attempts):
            return attempts
        capacity = {name: lane.place.backend.capacity() for name, lane in resting.items()}
        slots = free_slots(
            capacity,
            attempts,
            staff_only=[name for name, lane in resting.items() if not lane.place.untrusted],
            widest={name: lane.place.widest for name, lane in resting.items()},
            keepers=keepers,
        )
        starts, rule = self._starts(attempts, now, last=True), self.rules.overflow
        slots = [one for one in slots if not placement.is_late(starts.get((one.backend, one.gpu)), rule, now)]
        done: dict[int, OpenAttempt] = {}
        waiting, answers = self.store.queue.waiting(), self._knocked(resting)
        for attempt, homes in placement.coming_home(slots, self._place_views(), attempts, waiting, answers=answers):
            crash_point("withdraw.before_wish")
            if self.store.attempts.withdraw(attempt, homes, "home has room for it again", now):
                crash_point("withdraw.after_wish")
                done[attempt.id] = dataclasses.replace(attempt, withdraw_at=now)
                tell("withdrawn", run=attempt.run_id, attempt=attempt.number, backend=attempt.backend)
        return [done.get(one.id, one) for one in attempts]

    def _knocked(self, resting: Mapping[str, Lane]) -> set[str]:
        """Homes that are due for a test and have answered since; the others are asked."""
        answers = set()
        for name, lane in resting.items():
            if lane.place.role == "home" and lane.breaker.state is breakers.State.HALF_OPEN:
                lane.knock = lane.breaker.since is None or lane.answered_at < lane.breaker.since
                answers |= set() if lane.knock else {name}
        return answers

    def _is_away(self, attempt: OpenAttempt) -> bool:
        lane = self.lanes.get(attempt.backend)
        return lane is not None and lane.place.role == "overflow"
