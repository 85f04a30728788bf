"""The daemon's main loop: one leader at a time reads the database and has the lanes do what is due.

The main thread holds the lease, claims runs and hands out turns; a lane launches, collects and sweeps at one place, so
that a hung sbatch holds up only its own site. A new process needs nothing that is remembered here, so this one can be
killed at any time.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from kbslurm.daemon.clock import NEVER, WallClock, leapt_s, went_back
from kbslurm.daemon.journal import Journal
from kbslurm.daemon.keeper_step import KeeperStep
from kbslurm.daemon.lane import Lane, trace_of
from kbslurm.daemon.placement_step import PlacementStep
from kbslurm.daemon.reload_step import Read, ReloadStep, merged
from kbslurm.daemon.timing import Timing, back_off_s
from kbslurm.daemon.wake import Wake
from kbslurm.domain import drains
from kbslurm.domain.placement import Overflow, Rules
from kbslurm.domain.run import OpenAttempt
from kbslurm.errors import KbslurmError
from kbslurm.flow.collect import end_cancelled
from kbslurm.flow.place import Place
from kbslurm.flow.queue import claim, free_slots, taken
from kbslurm.observe.logs import teller
from kbslurm.observe.metrics import Metrics
from kbslurm.ports import Clock, Store

tell = teller("daemon")

LEASE = "daemon"
CLAIMS_PER_TICK = 64
UNKNOWN_PLACE = "this daemon doesn't know it: it belongs to another host, or its site is no longer configured"
STOP_LOOK_S = 0.5
COUNT_EVERY_S = 2.0
FORGET_EVERY_S = 3_600.0
LATE_FOR_S = 3_600.0
TEND_EVERY_S = 0.5


class Daemon:
    """Leads while it holds the lease; otherwise it stands by, says so, and takes over when the leader is gone."""

    def __init__(
        self,
        store: Store,
        places: Sequence[Place],
        *,
        clock: Clock | None = None,
        timing: Timing | None = None,
        metrics: Metrics | None = None,
        holder: str | None = None,
        steady: Callable[[], float] | None = None,
        rules: Rules | None = None,
        before: Mapping[str, Any] | None = None,
        reread: Read | None = None,
    ) -> None:
        self.store, self.clock, self.timing = store, clock or WallClock(), timing or Timing()
        # A monotonic clock that doesn't count sleep; without it, a test's own clock is trusted.
        self._steady = steady or (time.monotonic if clock is None else None)
        self._steady_at = 0.0
        self.metrics = metrics or Metrics()
        self.holder = holder or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self.wake = Wake()
        self.lanes = {place.name: self._lane(place) for place in places}
        self._know_each_other()
        rules = rules or Rules(overflow=Overflow(when="when_down"))
        self.placement = PlacementStep(store, self.lanes, rules, self.timing)
        self.keeping = KeeperStep(store, self.lanes, self.metrics)
        self.reloading = ReloadStep(store, self.holder, reread, self.wake.ring)
        self.journal = Journal(store.places)
        self._before = before or {}
        self.leading: bool | None = None
        self._renew_at = self._count_at = self._late_at = self._known_at = self._tend_at = self._forget_at = NEVER
        self._untended = False
        self._unknown_places: set[str] = set()
        self._settled = True
        self._troubles, self._began = 0, False
        self._over = threading.Event()

    def run(self, stop: threading.Event, *, once: bool = False) -> None:
        """Run until `stop`, or, with `once`, until no run is queued and no attempt is open."""
        listener = threading.Thread(target=self._listen, name="events", daemon=True)
        listener.start()
        self.journal.open()
        tell("started", holder=self.holder, places=",".join(self.lanes))
        try:
            while not stop.is_set():
                wait_s = self._tick_or_back_off(once)
                if wait_s is None:
                    break
                self._rest(wait_s, stop)
        finally:
            self._close(listener)

    def visit(self, stop: threading.Event, *, for_s: float, stay: bool) -> bool:
        """Do what is due, wait for it, and end: at the latest after `for_s`, and with `stay` not before. False, with
        nothing done, if another daemon leads. Unlike `run`, it raises what goes wrong with the database."""
        listener = threading.Thread(target=self._listen, name="events", daemon=True)
        listener.start()
        self.journal.open()
        until = time.monotonic() + for_s
        try:
            while not stop.is_set() and (left_s := until - time.monotonic()) > 0:
                _, calm_s = self.tick()
                if not self.leading:
                    return False
                if not (stay or calm_s <= 0 or self._began or self.busy()):
                    break
                self._rest(min(calm_s, left_s), stop)
            return True
        finally:
            self._close(listener)

    def reload(self) -> None:
        """Take a changed configuration in the next tick, which is now; from any thread or signal handler."""
        self.reloading.ask()
        self.wake.ring()

    def busy(self) -> list[str]:
        """The places with a call in progress."""
        return [name for name, lane in self.lanes.items() if lane.busy]

    def told(self) -> dict[str, Any]:
        """What `kbslurm status` shows about this process: each place's health, and the rest of its call budget."""
        return {
            "places": {
                name: {**lane.told(), "draining": self.placement.draining_told(lane)}
                for name, lane in self.lanes.items()
            },
            "overflow": self.placement.told(),
            "warm": self.keeping.told(),
            "reload": self.reloading.told(),
        }

    def _lane(self, place: Place) -> Lane:
        return Lane(
            store=self.store,
            place=place,
            clock=self.clock,
            wake=self.wake,
            metrics=self.metrics,
            breaker_s=self.timing.breaker_s,
        )

    def _know_each_other(self) -> None:
        places = tuple(lane.place for lane in self.lanes.values())
        for lane in self.lanes.values():
            lane.places = places

    def _reload(self, now: datetime) -> None:
        """Have the configuration read if somebody wants that, and take one that has been read; or say why it can't be
        used."""
        self.reloading.begin()
        if (came := self.reloading.came()) is None:
            return
        found = self.reloading.usable(came, now)
        if found is not None:
            self.timing = found.timing
            known = set(self.lanes)
            changes = merged(self.lanes, found.places, self._lane, now)
            for name in set(self.lanes) - known:
                self.lanes[name].breaker = self.placement.stored_breaker(name)
                self._unknown_places.discard(name)
            for lane in self.lanes.values():
                lane.breaker_s = found.timing.breaker_s
            self.placement.rules = found.rules
            self._settled = False
            self.reloading.taken(changes, found.restart, now)
        self._renew_at = NEVER

    def _follow(self) -> None:
        """Stand by where the leader is: a changed place whose attempts it has elsewhere by now is taken from there."""
        changed = {name: lane for name, lane in self.lanes.items() if lane.changed is not None and not lane.busy}
        if not changed:
            return
        told = self.store.leases.told(LEASE).get("places", {})
        for name, lane in changed.items():
            if lane.changed is not None and told.get(name, {}).get("home") == lane.changed.home:
                lane.move(lane.changed)
                self._settled = False

    def _settle(self, by_place: Mapping[str, Sequence[OpenAttempt]], resting: Mapping[str, Lane]) -> bool:
        """Bring lanes to what the configuration says, each as soon as it can be: when it isn't busy, and where its
        attempts would be elsewhere, or it is to go, when none is open. Only the leader knows that. Returns whether one
        moved."""
        held = {one.backend for one in self.keeping.known}
        moved = False
        for name, lane in list(self.lanes.items()):
            if lane.busy or name not in resting:
                continue
            idle = not by_place.get(name) and name not in held
            if lane.leaving and idle:
                del self.lanes[name]
                lane.close(self.timing.stop_within_s)
                tell("gone", backend=name, why="it isn't in the configuration any more, and nothing is open there")
                self._settled = False
            elif lane.changed is not None and (idle or lane.changed.home == lane.place.home):
                moved = moved or lane.changed.home != lane.place.home
                lane.move(lane.changed)
                tell("changed", backend=name, slots=dict(lane.place.backend.capacity()))
                self._settled = False
        closed = {
            (name, gpu): drains.in_words(one.told())
            for name, lane in self.lanes.items()
            for gpu, one in self.placement.draining(lane).items()
        }
        if not self._settled:
            self._settled = True
            self._know_each_other()
            self.placement.know(self.placement.rules, self.timing)
            self._renew_at = NEVER
        self.keeping.know(closed)
        return moved

    def tick(self) -> tuple[int, float]:
        """Go through the database once; returns how many attempts are open, and how long until there is more to do."""
        now = self.clock.now()
        self._keep_time(now)
        self._reload(now)
        if self.placement.read_drains():
            self._renew_at = NEVER  # whoever asks why a run waits is told at once
        self.journal.write()
        if not self._lead(now):
            return 0, self.timing.lease_s / 3
        self.reloading.answer()
        began = time.perf_counter()
        # Only lanes that were idle before the read: what a busy lane does meanwhile isn't in the data yet.
        resting = {name: lane for name, lane in self.lanes.items() if not lane.busy and now >= lane.ready_at}
        attempts = self.store.attempts.open()
        by_place = self._by_place(attempts)
        self._end_cancelled_at_unknown_places(by_place, now)
        self._tend(now)
        self.keeping.open(now)
        if self._settle(by_place, resting):
            return len(attempts), 0.0  # the next tick publishes it first, for a standby, and then sends something there
        resting = {name: lane for name, lane in resting.items() if name in self.lanes}
        self.keeping.before_claims(resting, attempts, now)
        keepers = self.keeping.by_place()
        attempts = self.placement.before_claims(resting, attempts, now, keepers=self.keeping.known)
        claimed = self._claim(resting, attempts, now)
        dead, self._began = self._lately_dead(now), False
        for name, lane in resting.items():
            mine, lost = ([attempt for attempt in some if attempt.backend == name] for some in (claimed, dead))
            away, drained = self.placement.gives_back(lane), set(self.placement.draining(lane))
            turn = lane.next_turn(
                by_place.get(name, ()), mine, lost, now, give_back=away, drained=drained, keepers=keepers[name]
            )
            if turn is not None:
                lane.begin(turn)
                self._began = True
        self._count(attempts, now)
        self._forget(now)
        self.metrics.ticks.inc()
        self.metrics.tick_s.observe(time.perf_counter() - began)
        return len(attempts) + len(claimed), self._calm_s(by_place, now)

    def _keep_time(self, now: datetime) -> None:
        if went_back(self._known_at, now):
            tell("the clock was set back", level="warning", by_s=(self._known_at - now).total_seconds())
            self._renew_at = self._count_at = self._late_at = self._tend_at = NEVER
            self.placement.keep_time()
            self.keeping.keep_time()
        if self._steady is not None:
            before, self._steady_at = self._steady_at, self._steady()
            if self.leading and (by_s := leapt_s(self._known_at, now, self._steady_at - before)):
                self._give_time(by_s)
        self._known_at = now
        for lane in self.lanes.values():
            if not lane.busy:
                lane.keep_time(now)

    def _give_time(self, by_s: float) -> None:
        """Extend deadlines when the clock jumps, so that no submitter is blamed for a timeout."""
        put_off = self.store.attempts.put_off_deadlines(by_s)
        tell("the clock jumped forward, or this machine slept", level="warning", by_s=by_s, deadlines_put_off=put_off)

    def _lately_dead(self, now: datetime) -> Sequence[OpenAttempt]:
        if now < self._late_at:
            return ()
        self._late_at = now + timedelta(seconds=self.timing.late_s)
        return self.store.attempts.lately_dead(now - timedelta(seconds=LATE_FOR_S))

    def _tend(self, now: datetime) -> None:
        """From time to time, order due calibrations and release the runs that waited for one."""
        self._untended = now < self._tend_at
        if self._untended:
            return
        self._tend_at = now + timedelta(seconds=TEND_EVERY_S)
        if done := self.store.calibrations.tend(now):
            tell("tended", ordered_or_released=done)

    def _forget(self, now: datetime) -> None:
        if now >= self._forget_at:
            self._forget_at = now + timedelta(seconds=FORGET_EVERY_S)
            if gone := self.store.artifacts.forget(now - timedelta(seconds=self.timing.keep_artifacts_s)):
                tell("deleted old artifacts", files=gone)

    def _count(self, attempts: Sequence[OpenAttempt], now: datetime) -> None:
        if now >= self._count_at:
            self._count_at = now + timedelta(seconds=COUNT_EVERY_S)
            self.metrics.saw(self.store.queue.waiting(), attempts)
            self.metrics.saw_keepers(self.keeping.known)

    def _tick_or_back_off(self, once: bool) -> float | None:
        try:
            calm_s = self._tick(once)
        except KbslurmError as error:
            return self._trouble(error.message)
        except Exception as error:  # noqa: BLE001 - the daemon outlives its bugs; they are logged in full
            tell("a bug", level="error", error=repr(error), trace=trace_of(error))
            return self._trouble(repr(error))
        if self._troubles:
            tell("database works again")
        self._troubles = 0
        return calm_s

    def _tick(self, once: bool) -> float | None:
        open_work, calm_s = self.tick()
        if once and self.leading and not open_work and not self.busy():
            return calm_s if self.store.queue.waiting() else None
        return calm_s

    def _trouble(self, why: str) -> float:
        self._troubles += 1
        wait_s = back_off_s(self._troubles, first_s=self.timing.database_back_off_s, most_s=10.0)
        tell("trouble", level="warning", why=why, again_in_s=wait_s)
        return wait_s

    def _lead(self, now: datetime) -> bool:
        if self.leading and now < self._renew_at:
            return True
        if not self.leading:
            self._follow()
        held = self.store.leases.hold(LEASE, self.holder, self.timing.lease_s, now, info=self.told())
        self._renew_at = now + timedelta(seconds=self.timing.lease_s / 3)
        if held and not self.leading:
            tell("leading", holder=self.holder)
            self.placement.take_over(self._before)
            self._before = {}
        elif not held and self.leading is not False:
            tell(
                "standby", holder=self.holder, why="another daemon holds the lease; this one takes over when it is gone"
            )
        self.leading = held
        self.metrics.leading.set(1 if held else 0)
        return held

    def _claim(self, resting: Mapping[str, Lane], attempts: Sequence[OpenAttempt], now: datetime) -> list[OpenAttempt]:
        """Busy or paused lanes get no new runs: those go elsewhere or wait a moment."""
        places = [lane.place for lane in resting.values()]
        slots = free_slots(
            {place.name: place.backend.capacity() for place in places},
            attempts,
            staff_only=[place.name for place in places if not place.untrusted],
            widest={place.name: place.widest for place in places},
            keepers=self.keeping.known,
        )
        slots = self.keeping.offered(slots, resting, attempts, now)
        slots, rules = self.placement.offered(slots, attempts, now), self.placement.claim_rules()
        claimed: list[OpenAttempt] = []
        while slots and len(claimed) < CLAIMS_PER_TICK:
            attempt = claim(self.store.queue, slots, now, rules=rules)
            if attempt is None:
                break
            self.metrics.claims.labels(attempt.backend, attempt.gpu).inc()
            tell("claimed", run=attempt.run_id, attempt=attempt.number, backend=attempt.backend, job=attempt.name)
            claimed.append(attempt)
            slots = taken(slots, attempt)
        return claimed

    def _by_place(self, attempts: Sequence[OpenAttempt]) -> Mapping[str, list[OpenAttempt]]:
        found: dict[str, list[OpenAttempt]] = {}
        for attempt in attempts:
            found.setdefault(attempt.backend, []).append(attempt)
        for name in sorted(set(found) - set(self.lanes) - self._unknown_places):
            self._unknown_places.add(name)
            tell(
                "unknown place",
                level="warning",
                backend=name,
                open_attempts=len(found[name]),
                why=f"{UNKNOWN_PLACE}; its attempts stay open until a daemon that knows it leads or they are cancelled",
            )
        return found

    def _end_cancelled_at_unknown_places(self, by_place: Mapping[str, list[OpenAttempt]], now: datetime) -> None:
        """Close cancelled attempts of unknown places: no one can query such a place, and their reports can't count."""
        for name in set(by_place) - set(self.lanes):
            for attempt in by_place[name]:
                if attempt.cancel_at is not None:
                    end_cancelled(self.store.attempts, attempt, now)

    def _calm_s(self, by_place: Mapping[str, list[OpenAttempt]], now: datetime) -> float:
        moments = [now + timedelta(seconds=self.timing.idle_s), self._renew_at]
        if self._untended:
            moments.append(self._tend_at)
        if (decide_at := self.keeping.wakes_at(now)) is not None:
            moments.append(max(now, decide_at))
        keepers = self.keeping.by_place()
        for name, lane in self.lanes.items():
            at = lane.wakes_at(by_place.get(name, ()), now, keepers=keepers[name])
            if at is not None:
                moments.append(at)
            if not lane.busy and lane.ready_at > now:
                moments.append(lane.ready_at)
            if (try_at := self.placement.tries_at(lane)) is not None:
                moments.append(max(now, try_at))
        return max(0.0, (min(moments) - now).total_seconds())

    def _rest(self, wait_s: float, stop: threading.Event) -> None:
        doorbells = {lane.doorbell: lane for lane in self.lanes.values() if lane.doorbell is not None}
        until = time.monotonic() + wait_s
        while not stop.is_set() and (left_s := until - time.monotonic()) > 0:
            rang = self.wake.wait(min(left_s, STOP_LOOK_S), doorbells)
            if rang is not None:
                for fd in rang:
                    doorbells[fd].rung = True
                return

    def _listen(self) -> None:
        wait_s = self.timing.database_back_off_s
        while not self._over.is_set():
            try:
                if self.store.events.wait(self.timing.event_wait_s):
                    self.wake.ring()
                wait_s = self.timing.database_back_off_s
            except Exception:  # noqa: BLE001 - only a hint; the main thread meets the same trouble and tells it
                self._over.wait(wait_s)
                wait_s = min(10.0, wait_s * 2)

    def _close(self, listener: threading.Thread) -> None:
        self._over.set()
        tell("stopping", open="running attempts go on, and the next start finds them again")
        until = time.monotonic() + self.timing.stop_within_s
        for lane in self.lanes.values():
            lane.close(max(0.1, until - time.monotonic()))
        listener.join(timeout=self.timing.event_wait_s + 3)
        if self.leading:
            with contextlib.suppress(KbslurmError):
                self.store.leases.release(LEASE, self.holder)
        self.metrics.leading.set(0)
        self.leading = None
        if not self.busy() and not self.reloading.busy:
            self.wake.close()  # a lane that still hangs would ring it
        self.journal.close()
        tell("stopped")
