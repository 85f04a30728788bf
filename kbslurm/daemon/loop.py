"""The daemon: one leader walks the rows. A tick is queue → launch → collect → score → sweep; everything is in the rows.

The main thread holds the lease, claims, and wakes. Each place has a lane, a thread of its own for all calls to its
backend, so that a hung sbatch holds up its own site and nobody else. A lane that meets trouble is left alone for a
while, longer each time. Nothing here is remembered that a new process would need: it can be killed at any moment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import Any

from kbslurm import wiring
from kbslurm.config.settings import Config
from kbslurm.domain import breaker as breakers
from kbslurm.domain import placement
from kbslurm.domain.breaker import CLOSED, Breaker
from kbslurm.domain.placement import Facts, Overflow, Plan, Planned, Rules
from kbslurm.domain.run import AttemptState, JobName, OpenAttempt, Seen, Slot, new_job_name
from kbslurm.errors import BackendTrouble, KbslurmError
from kbslurm.flow.collect import Vigil, collect, collect_late, end_cancelled
from kbslurm.flow.launch import Launched, foresee, is_settled, launch
from kbslurm.flow.place import Place
from kbslurm.flow.queue import claim, free_slots, taken
from kbslurm.flow.sweep import give_back, is_wanted_back, sweep, unsettled
from kbslurm.observe import logs
from kbslurm.observe.crash_points import probe
from kbslurm.observe.logs import teller
from kbslurm.observe.metrics import Metrics, MetricsPage
from kbslurm.ports import Clock, Foresees, Store

tell = teller("daemon")

LEASE = "daemon"
CLAIMS_PER_TICK = 64
STRANGER = "this daemon doesn't have it: another host's own slots, or a site that isn't configured any more"
LONGEST_BACK_OFF_S = 60.0
LONGEST_PUT_OFF_S = 60.0
STOP_LOOK_S = 0.5
COUNT_EVERY_S = 2.0
FORGET_EVERY_S = 3_600.0
CLOCK_SLIP_S = 5.0
PRUNE_EVERY_S = 3_600.0
LATE_FOR_S = 3_600.0
TEND_EVERY_S = 0.5
FORESEE_EVERY_S = 60.0
FORESEE_AGAIN_S = 600.0
NEVER = datetime.min.replace(tzinfo=UTC)


def back_off_s(times: int, *, first_s: float, most_s: float) -> float:
    """How long to leave something alone after so many failures in a row: twice as long each time, up to `most_s`."""
    return float(min(most_s, first_s * 2.0 ** min(30, max(0, times - 1))))


def went_back(before: datetime, now: datetime) -> bool:
    """Whether the clock was set back between these looks at it, by more than a clock that is kept slips."""
    return now + timedelta(seconds=CLOCK_SLIP_S) < before


def leapt_s(before: datetime, now: datetime, passed_s: float) -> float:
    """How far the clock went forward while less time passed: it was set, or the machine slept. 0 for what slips."""
    more_s = (now - before).total_seconds() - passed_s
    return more_s if before > NEVER and more_s > CLOCK_SLIP_S else 0.0


class WallClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How the daemon paces itself. `idle_s`: a look at the rows at least this often, should every message be lost.

    `late_s`: how often we look for reports of attempts that were given up within the last hour. `keep_artifacts_s`: how
    long the files of a profile are kept. `breaker_s`: how long a place that fails is left alone at first. `shadow_s`:
    how often we look whether a run that ranked is to be measured elsewhere, too.
    """

    lease_s: float = 15.0
    idle_s: float = 30.0
    news_s: float = 0.5
    late_s: float = 60.0
    stop_within_s: float = 15.0
    database_back_off_s: float = 0.5
    keep_artifacts_s: float = 14 * 86_400.0
    breaker_s: float = breakers.FIRST_S
    shadow_s: float = 10.0


class Wake:
    """A bell that any thread may ring, and descriptors beside it."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def ring(self) -> None:
        """Wake the waiter, now or when it next waits."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._write, b"!")

    def wait(self, timeout_s: float, doorbells: Iterable[int]) -> frozenset[int] | None:
        """Wait for the bell or a doorbell: which doorbells rang, or None when the time was over. They are emptied."""
        poller = select.poll()
        for fd in (self._read, *doorbells):
            poller.register(fd, select.POLLIN)
        rang = [fd for fd, _ in poller.poll(max(0.0, timeout_s) * 1000)]
        for fd in rang:
            _empty(fd)
        return frozenset(rang) - {self._read} if rang else None

    def close(self) -> None:
        """Nobody waits any more."""
        os.close(self._read)
        os.close(self._write)


def _empty(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while len(os.read(fd, 4096)) == 4096:
            pass


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What a lane is given to do: its open attempts as the rows said, those that were claimed for it just now, and
    those that were given up lately. `give_back`: what it has certainly not sent goes elsewhere. `knock`: ask whether
    the place answers. `foresee`: GPU types of which it is to say when it would start the next run."""

    attempts: Sequence[OpenAttempt]
    claimed: Sequence[OpenAttempt]
    poll: bool
    sweep: bool
    dead: Sequence[OpenAttempt] = ()
    give_back: bool = False
    knock: bool = False
    foresee: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Foreseen:
    """What a place said of when it would start the next run of a GPU type, were it sent; `at` None: nothing."""

    at: datetime | None
    asked_at: datetime

    def holds(self, now: datetime) -> bool:
        """Whether it isn't asked again yet: a place that can't say is asked more seldom."""
        return now < self.asked_at + timedelta(seconds=FORESEE_AGAIN_S if self.at is None else FORESEE_EVERY_S)


@dataclass(kw_only=True)
class Lane:
    """One place's worker. The main thread reads and writes its fields only while it isn't `busy`, but for `rung`."""

    store: Store
    place: Place
    clock: Clock
    wake: Wake
    metrics: Metrics
    places: Sequence[Place] = ()
    vigil: Vigil = field(default_factory=Vigil)
    rung: bool = True
    busy: bool = False
    troubles: int = 0
    in_vain: int = 0
    knock: bool = False
    foresee: Sequence[str] = ()
    foreseen: Mapping[str, Foreseen] = field(default_factory=dict)
    answered_at: datetime = NEVER
    breaker: Breaker = CLOSED
    breaker_s: float = breakers.FIRST_S
    why: str = ""
    ready_at: datetime = NEVER
    poll_at: datetime = NEVER
    sweep_at: datetime = NEVER
    prune_at: datetime = NEVER
    known_at: datetime = NEVER

    def __post_init__(self) -> None:
        self._turns: SimpleQueue[Turn | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"lane-{self.place.name}", daemon=True)
        self._thread.start()
        doorbell = getattr(self.place.backend, "doorbell", None)
        self.doorbell: int | None = doorbell() if doorbell is not None else None

    def next_turn(
        self,
        attempts: Sequence[OpenAttempt],
        claimed: Sequence[OpenAttempt],
        dead: Sequence[OpenAttempt],
        now: datetime,
        *,
        give_back: bool = False,
    ) -> Turn | None:
        """What this lane should do now, if anything. Nothing open, nothing asked: an idle site is left in peace."""
        foresee, self.foresee = self.foresee, ()
        if not attempts and not claimed and not dead and not self.knock and not foresee:
            return None
        poll = bool(attempts) and (self.rung or now >= self.poll_at)
        swept = bool(attempts) and (now >= self.sweep_at or any(at <= now for at in self._cancels_due(attempts)))
        launches = bool(claimed) or self._has_due_launches(now)
        give_back = give_back and any(attempt.id in self.vigil.put_off for attempt in attempts)
        knock, self.knock = self.knock and not launches, False
        sweeps = swept and self._has_unsettled(attempts, now)
        if not (poll or launches or dead or give_back or knock or foresee or sweeps):
            return None
        turn = Turn(attempts=attempts, claimed=claimed, dead=dead, poll=poll, sweep=swept)
        return dataclasses.replace(turn, give_back=give_back, knock=knock, foresee=foresee)

    def wakes_at(self, attempts: Sequence[OpenAttempt], now: datetime) -> datetime | None:
        """When it has something to do, should nothing else happen."""
        if self.busy or not attempts:
            return None
        moments = [self.poll_at, *self.vigil.unsent.values(), *self._cancels_due(attempts)]
        if self._has_unsettled(attempts, now):
            moments.append(self.sweep_at)
        return max(self.ready_at, min(moments))

    def begin(self, turn: Turn) -> None:
        """Hand it a turn. It rings when it is done."""
        self.busy = True
        if turn.poll:
            self.rung = False
        self._turns.put(turn)

    def keep_time(self, now: datetime) -> None:
        """After the clock was set back, what was due then is due now: not when it gets there for the second time."""
        if went_back(self.known_at, now):
            self.ready_at = self.poll_at = self.sweep_at = self.prune_at = NEVER
            self.vigil.unsent = dict.fromkeys(self.vigil.unsent, now)
            self.vigil.ended.clear()
            self.vigil.ask_at.clear()
            self.foreseen = {}
        self.known_at = now

    def told(self) -> dict[str, Any]:
        """How it stands, for the state of things."""
        pace = getattr(self.place.backend, "pace_report", None)
        return {
            "troubles": self.troubles,
            "why": self.why if self.troubles else "",
            "pace": dataclasses.asdict(pace()) if pace is not None else None,
            "slots": dict(self.place.backend.capacity()),
            "widest": dict(self.place.widest),
            "staff_only": not self.place.untrusted,
            "role": self.place.role,
            "classes": {gpu: self.place.ground().class_of(gpu) for gpu in self.place.backend.capacity()},
            "prices": dict(self.place.prices),
            "breaker": breakers.told(self.breaker),
        }

    def expects(self, attempts: Sequence[OpenAttempt], now: datetime, *, last: bool = False) -> Mapping[str, Planned]:
        """When the place means to start the first of our jobs that wait there, by GPU type, as far as it has told;
        where it hasn't, when it said that it would start the next one. `last`: what it said last, however long ago."""
        found: dict[str, Planned] = {}
        for attempt in attempts:
            said = self.vigil.told.get(attempt.id, {}).get("expected_at")
            if attempt.backend == self.place.name and attempt.state is AttemptState.SUBMITTED and said:
                at = datetime.fromisoformat(said)
                if attempt.gpu not in found or at < found[attempt.gpu].at:
                    found[attempt.gpu] = Planned(at=at, by="squeue --start")
        for gpu, seen in self.foreseen.items():
            if gpu not in found and seen.at is not None and (last or seen.holds(now)):
                found[gpu] = Planned(at=seen.at, by="sbatch --test-only")
        return found

    def forget(self) -> None:
        """Begin like a new process: after this one has led before, others may have."""
        self.vigil, self.rung, self.troubles, self.in_vain = Vigil(), True, 0, 0
        self.foresee, self.foreseen = (), {}
        self.ready_at = self.poll_at = self.sweep_at = NEVER

    def close(self, within_s: float) -> None:
        """Let it finish what it is doing, for so long."""
        self._turns.put(None)
        self._thread.join(timeout=within_s)
        if self._thread.is_alive():
            tell("left a hung call behind", level="warning", backend=self.place.name)
        elif (close := getattr(self.place.backend, "close", None)) is not None:
            close()

    def _has_unsettled(self, attempts: Sequence[OpenAttempt], now: datetime) -> bool:
        return any(attempt.id not in self.vigil.unsent for attempt in unsettled(attempts, now))

    def _cancels_due(self, attempts: Sequence[OpenAttempt]) -> list[datetime]:
        """When a sweep should act on cancels that it can act on; whether a job without a handle exists needs its own
        time."""
        return [
            self.vigil.ask_at.get(a.id, NEVER)
            for a in attempts
            if (a.cancel_at is not None or is_wanted_back(a)) and (a.id in self.vigil.unsent or a.handle)
        ]

    def _has_due_launches(self, now: datetime) -> bool:
        return any(at <= now for at in self.vigil.unsent.values())

    def _work(self) -> None:
        while (turn := self._turns.get()) is not None:
            self._take(turn)
            self.busy = False
            self.wake.ring()

    def _take(self, turn: Turn) -> None:
        self.metrics.turns.labels(self.place.name).inc()
        try:
            self._walk(turn)
            if self.troubles:
                tell("works again", backend=self.place.name)
                self.breaker = breakers.answered(self.breaker, self.clock.now())
            self.troubles = 0
        except BackendTrouble as error:
            self._back_off(error.message, error.retry_after_s)
        except KbslurmError as error:
            self._back_off(error.message, None)
        except Exception as error:  # noqa: BLE001 - one site's surprise must not stop the others; it is told in full
            tell("a bug", level="error", backend=self.place.name, error=repr(error), trace=_trace(error))
            self._back_off(repr(error), None)
        self.metrics.backing_off.labels(self.place.name).set(1 if self.troubles else 0)

    def _walk(self, turn: Turn) -> None:
        now = self.clock.now()
        self.vigil.forget_all_but([*turn.attempts, *turn.claimed])
        self.vigil.unsent.update({attempt.id: now for attempt in turn.claimed})
        if turn.give_back:
            for attempt in turn.attempts:
                give_back(self.store, self.place, attempt, self.vigil, now)
        # Trouble with one of these must not keep the others from being seen to.
        with contextlib.ExitStack() as steps:
            steps.callback(self._tidy, turn, now)
            steps.callback(self._collect, turn)
            steps.callback(self._foresee, turn)
            steps.callback(self._launch_due, [*turn.attempts, *turn.claimed])
            steps.callback(self._knock, turn)
            self._sweep(turn, now)

    def _knock(self, turn: Turn) -> None:
        """Ask for a job that isn't there: who says so surely has looked everywhere, and works."""
        if turn.knock and self.place.backend.find(new_job_name()).seen is Seen.ABSENT:
            self.answered_at = self.clock.now()

    def _foresee(self, turn: Turn) -> None:
        """Whoever waits for the answer goes on without one where there is none: that is noted first."""
        for gpu in turn.foresee:
            now = self.clock.now()
            self.foreseen = {**self.foreseen, gpu: Foreseen(at=None, asked_at=now)}
            at = foresee(self.store, self.place, gpu, now)
            self.foreseen = {**self.foreseen, gpu: Foreseen(at=at, asked_at=now)}

    def _sweep(self, turn: Turn, now: datetime) -> None:
        """Before launches: a site that allows so many calls a minute is to be spared first, then given more."""
        if turn.sweep:
            self.sweep_at = self.clock.now() + timedelta(seconds=max(0.05, self.place.sweep_gap_s))
            sweep(self.store, self.place, unsettled(turn.attempts, now), self.vigil, self.clock.now())

    def _collect(self, turn: Turn) -> None:
        if turn.poll:
            self.poll_at = self.clock.now() + timedelta(seconds=self.place.poll_s)
            settled = collect(self.store, self.place, turn.attempts, self.vigil, self.clock.now())
            self.metrics.settled.labels(self.place.name).inc(settled)

    def _tidy(self, turn: Turn, now: datetime) -> None:
        collect_late(self.store, self.place, turn.dead, now)
        if now >= self.prune_at:
            self.prune_at = now + timedelta(seconds=PRUNE_EVERY_S)
            keep = {attempt.name for attempt in (*turn.attempts, *turn.claimed)}
            self._prune(now - timedelta(seconds=self.place.keep_s), keep)

    def _prune(self, before: datetime, keep: Collection[JobName]) -> None:
        """Let a backend that keeps files remove those of attempts that ended long ago."""
        prune = getattr(self.place.backend, "prune", None)
        gone = prune(before, keep=keep) if prune is not None else 0
        if gone:
            tell("pruned", backend=self.place.name, attempts=gone)

    def _launch_due(self, attempts: Sequence[OpenAttempt]) -> None:
        came_of: list[Launched] = []
        with contextlib.ExitStack() as at_last:
            at_last.callback(self._judge_launches, came_of)
            self._launch_each(attempts, came_of)

    def _judge_launches(self, came_of: Sequence[Launched]) -> None:
        """One that it took, and the place works; none, and one that came to nothing, and it is one more in vain."""
        if Launched.SUBMITTED in came_of:
            self.in_vain, self.breaker = 0, breakers.launched(self.breaker)
        elif Launched.AWAY in came_of or Launched.AMBIGUOUS in came_of:
            self.in_vain += 1
            why = "what was sent there wasn't taken, or nobody knows whether it was"
            self._fails(self.in_vain, why)

    def _fails(self, in_a_row: int, why: str) -> None:
        self.breaker = breakers.failed(self.breaker, in_a_row, why, self.clock.now(), first_s=self.breaker_s)

    def _launch_each(self, attempts: Sequence[OpenAttempt], came_of: list[Launched]) -> None:
        for attempt in attempts:
            now = self.clock.now()
            due = self.vigil.unsent.get(attempt.id)
            if due is None or due > now or attempt.cancel_at is not None:
                continue
            # From here on it was perhaps sent: if this dies or fails, the sweep looks for it by name.
            del self.vigil.unsent[attempt.id]
            came = launch(self.store, self.place, attempt, now, others=self.places)
            came_of.append(came)
            self.metrics.launches.labels(self.place.name, came).inc()
            if not is_settled(came):
                self._put_off(attempt)

    def _put_off(self, attempt: OpenAttempt) -> None:
        times = self.vigil.put_off.get(attempt.id, 0) + 1
        self.vigil.put_off[attempt.id] = times
        first_s = 2.0 * min(1.0, self.place.sweep_gap_s)  # where things are soon known, they are soon tried again
        wait_s = back_off_s(times, first_s=first_s, most_s=LONGEST_PUT_OFF_S)
        self.vigil.unsent[attempt.id] = self.clock.now() + timedelta(seconds=wait_s)

    def _back_off(self, why: str, retry_after_s: float | None) -> None:
        self.troubles += 1
        self.why = why
        self._fails(self.troubles, why)
        self.metrics.trouble.labels(self.place.name).inc()
        usual_s = back_off_s(self.troubles, first_s=1.0, most_s=LONGEST_BACK_OFF_S)
        wait_s = usual_s if retry_after_s is None else retry_after_s
        self.ready_at = self.clock.now() + timedelta(seconds=wait_s)
        tell("trouble", level="warning", backend=self.place.name, why=why, again_in_s=wait_s)


def _trace(error: BaseException) -> str:
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " > ".join(frames)


class Daemon:
    """Leads while it holds the lease; else stands by, says so, and takes over when the leader is gone."""

    def __init__(
        self,
        store: Store,
        places: Sequence[Place],
        *,
        clock: Clock | None = None,
        pace: Pace | None = None,
        metrics: Metrics | None = None,
        holder: str | None = None,
        steady: Callable[[], float] | None = None,
        rules: Rules | None = None,
    ) -> None:
        self.rules = rules or Rules(overflow=Overflow(when="when_down"))
        self.has_policy = placement.needs_policy([place.ground() for place in places], self.rules)
        self.store, self.clock, self.pace = store, clock or WallClock(), pace or Pace()
        # Seconds that nobody can set and that don't count sleep; without them a clock of a test's own is believed.
        self._steady = steady or (time.monotonic if clock is None else None)
        self._steady_at = 0.0
        self.metrics = metrics or Metrics()
        self.holder = holder or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self.wake = Wake()
        self.lanes = {
            place.name: Lane(
                store=store,
                place=place,
                clock=self.clock,
                wake=self.wake,
                metrics=self.metrics,
                places=tuple(places),
                breaker_s=self.pace.breaker_s,
            )
            for place in places
        }
        self.leading: bool | None = None
        self._renew_at = self._count_at = self._late_at = self._known_at = self._tend_at = self._forget_at = NEVER
        self._shadow_at = NEVER
        self._untended = False
        self._strangers: set[str] = set()
        self._breakers: dict[str, Breaker] = {}
        self._planned = Plan(slots=(), why={})
        self._facts = placement.Facts()
        grounds = [place.ground() for place in places]
        self._board_classes = {
            gpu: placement.board_class(gpu, grounds, self.rules) for ground in grounds for gpu in ground.slots
        }
        self._troubles = 0
        self._over = threading.Event()

    def run(self, stop: threading.Event, *, once: bool = False) -> None:
        """Walk until `stop`, or, with `once`, until no run waits and no attempt is open."""
        listener = threading.Thread(target=self._listen, name="news", daemon=True)
        listener.start()
        tell("started", holder=self.holder, places=",".join(self.lanes))
        try:
            while not stop.is_set():
                wait_s = self._tick_or_back_off(once)
                if wait_s is None:
                    break
                self._rest(wait_s, stop)
        finally:
            self._close(listener)

    def tick(self) -> tuple[int, float]:
        """Go once through the rows: (how many attempts are open, how long nothing else is to be done)."""
        now = self.clock.now()
        self._keep_time(now)
        if not self._lead(now):
            return 0, self.pace.lease_s / 3
        began = time.perf_counter()
        # Only lanes that rest before the rows are read: what a lane does meanwhile isn't in them yet.
        resting = {name: lane for name, lane in self.lanes.items() if not lane.busy and now >= lane.ready_at}
        attempts = self.store.open_attempts()
        by_place = self._by_place(attempts)
        self._let_strangers_go(by_place, now)
        self._tend(now)
        if self.has_policy:
            self._mind_breakers(now)
            attempts = self._bring_home(resting, attempts, now)
            self._shadow(now)
        claimed = self._claim([lane.place for lane in resting.values()], attempts, now)
        dead = self._lately_dead(now)
        for name, lane in resting.items():
            mine, lost = ([attempt for attempt in some if attempt.backend == name] for some in (claimed, dead))
            away = self.has_policy and lane.breaker.state is breakers.State.OPEN and self._has_others(lane.place)
            turn = lane.next_turn(by_place.get(name, ()), mine, lost, now, give_back=away)
            if turn is not None:
                lane.begin(turn)
        self._count(attempts, now)
        self._forget(now)
        self.metrics.ticks.inc()
        self.metrics.tick_s.observe(time.perf_counter() - began)
        return len(attempts) + len(claimed), self._calm_s(by_place, now)

    def _keep_time(self, now: datetime) -> None:
        if went_back(self._known_at, now):
            tell("the clock was set back", level="warning", by_s=(self._known_at - now).total_seconds())
            self._renew_at = self._count_at = self._late_at = self._tend_at = self._shadow_at = NEVER
        if self._steady is not None:
            before, self._steady_at = self._steady_at, self._steady()
            if self.leading and (by_s := leapt_s(self._known_at, now, self._steady_at - before)):
                self._give_time(by_s)
        self._known_at = now
        for lane in self.lanes.values():
            if not lane.busy:
                lane.keep_time(now)

    def _give_time(self, by_s: float) -> None:
        """A job doesn't outlive its deadline by our clock's leap: its submitter would be blamed for a timeout."""
        put_off = self.store.put_off_deadlines(by_s)
        tell("the clock went forward, or this machine slept", level="warning", by_s=by_s, deadlines_put_off=put_off)

    def _lately_dead(self, now: datetime) -> Sequence[OpenAttempt]:
        if now < self._late_at:
            return ()
        self._late_at = now + timedelta(seconds=self.pace.late_s)
        return self.store.lately_dead(now - timedelta(seconds=LATE_FOR_S))

    def _tend(self, now: datetime) -> None:
        """See to what runs wait for that the house owes them; not with every wink of the rows, but never forgotten."""
        self._untended = now < self._tend_at
        if self._untended:
            return
        self._tend_at = now + timedelta(seconds=TEND_EVERY_S)
        if done := self.store.tend(now):
            tell("tended", ordered_or_released=done)

    def _forget(self, now: datetime) -> None:
        if now >= self._forget_at:
            self._forget_at = now + timedelta(seconds=FORGET_EVERY_S)
            if gone := self.store.forget_artifacts(now - timedelta(seconds=self.pace.keep_artifacts_s)):
                tell("forgot artifacts", files=gone)

    def _told(self) -> dict[str, Any]:
        """What `kbslurm status` shows of this process: how each place is doing, and how much of its budget is left."""
        return {
            "places": {name: lane.told() for name, lane in self.lanes.items()},
            "overflow": {
                "rule": str(self.rules.overflow) if self.has_policy else "",
                "other_class": self.rules.other_class,
                "currency": self.rules.budget.currency,
                "boards": {board: list(places) for board, places in self.rules.boards.items()},
                "classes": self._board_classes if self.has_policy else {},
                "gpus": dict(self._planned.why),
                "held_up": dict(self._planned.held_up),
                "held_boards": {gpu: dict(boards) for gpu, boards in self._planned.held_boards.items()},
                "held_teams": {gpu: dict(teams) for gpu, teams in self._planned.held_teams.items()},
                "budget": placement.budget_told(self.rules.budget, self._facts),
            },
        }

    def _count(self, attempts: Sequence[OpenAttempt], now: datetime) -> None:
        if now >= self._count_at:
            self._count_at = now + timedelta(seconds=COUNT_EVERY_S)
            self.metrics.saw(self.store.waiting(), attempts)

    def _tick_or_back_off(self, once: bool) -> float | None:
        try:
            calm_s = self._tick(once)
        except KbslurmError as error:
            return self._trouble(error.message)
        except Exception as error:  # noqa: BLE001 - the daemon outlives its bugs; they are told in full
            tell("a bug", level="error", error=repr(error), trace=_trace(error))
            return self._trouble(repr(error))
        if self._troubles:
            tell("database works again")
        self._troubles = 0
        return calm_s

    def _tick(self, once: bool) -> float | None:
        open_work, calm_s = self.tick()
        if once and self.leading and not open_work and not any(lane.busy for lane in self.lanes.values()):
            return calm_s if self.store.waiting() else None
        return calm_s

    def _trouble(self, why: str) -> float:
        self._troubles += 1
        wait_s = back_off_s(self._troubles, first_s=self.pace.database_back_off_s, most_s=10.0)
        tell("trouble", level="warning", why=why, again_in_s=wait_s)
        return wait_s

    def _lead(self, now: datetime) -> bool:
        if self.leading and now < self._renew_at:
            return True
        held = self.store.hold_lease(LEASE, self.holder, self.pace.lease_s, now, info=self._told())
        self._renew_at = now + timedelta(seconds=self.pace.lease_s / 3)
        if held and not self.leading:
            tell("leading", holder=self.holder)
            self._breakers = dict(self.store.breakers()) if self.has_policy else {}
            for name, lane in self.lanes.items():
                if not lane.busy:
                    lane.forget()
                    lane.breaker = self._breakers.get(name, CLOSED)
        elif not held and self.leading is not False:
            tell(
                "standby", holder=self.holder, why="another daemon holds the lease; this one takes over when it is gone"
            )
        self.leading = held
        self.metrics.leading.set(1 if held else 0)
        return held

    def _claim(self, places: Sequence[Place], attempts: Sequence[OpenAttempt], now: datetime) -> list[OpenAttempt]:
        """Lanes that are at work or left alone get no new runs: they go elsewhere, or wait the moment."""
        slots = free_slots(
            {place.name: place.backend.capacity() for place in places},
            attempts,
            staff_only=[place.name for place in places if not place.untrusted],
            widest={place.name: place.widest for place in places},
        )
        if self.has_policy:
            slots = list(self._plan(slots, attempts, now).slots)
        claimed: list[OpenAttempt] = []
        while slots and len(claimed) < CLAIMS_PER_TICK:
            attempt = claim(self.store, slots, now, rules=self.rules if self.has_policy else None)
            if attempt is None:
                break
            self.metrics.claims.labels(attempt.backend, attempt.gpu).inc()
            tell("claimed", run=attempt.run_id, attempt=attempt.number, backend=attempt.backend, job=attempt.name)
            claimed.append(attempt)
            slots = taken(slots, attempt)
        return claimed

    def _grounds(self) -> list[placement.Ground]:
        return [lane.place.ground(lane.breaker) for lane in self.lanes.values()]

    def _has_others(self, place: Place) -> bool:
        """Whether what this place was to run may go to another."""
        return any(
            other.place is not place
            and set(other.place.backend.capacity()) & set(place.backend.capacity())
            and (other.place.role == "home" or self.rules.overflow.when != "never")
            for other in self.lanes.values()
        )

    def _plan(self, slots: Sequence[Slot], attempts: Sequence[OpenAttempt], now: datetime) -> Plan:
        """Which of the free slots are offered now. What else is open counts, too: a lane at work has its slots used."""
        facts = self.store.waiting_facts(now)
        starts = self._starts(attempts, now)
        asked = self._asks_ahead(slots, facts, starts, now)
        slots = [slot for slot in slots if (slot.backend, slot.gpu) not in asked]
        plan = placement.planned(slots, self._grounds(), self.rules, facts, attempts, now, starts=starts)
        self._planned, self._facts = plan, facts
        return plan

    def _starts(
        self, attempts: Sequence[OpenAttempt], now: datetime, *, last: bool = False
    ) -> Mapping[tuple[str, str], Planned]:
        """What home places said of when they start what is ours, by place and GPU type."""
        return {
            (name, gpu): start
            for name, lane in self.lanes.items()
            if lane.place.role == "home"
            for gpu, start in lane.expects(attempts, now, last=last).items()
        }

    def _asks_ahead(
        self, slots: Sequence[Slot], facts: Facts, starts: Mapping[tuple[str, str], Planned], now: datetime
    ) -> set[tuple[str, str]]:
        """Of which free slots their place is asked first when it would start what waits for them. That is worth a call
        where the rule goes by waits, a run is about to be sent, another place could take it, and nobody has said."""
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
            waits = slot.gpu in facts.demand and facts.demand[slot.gpu].waiting > 0
            works = lane.place.role == "home" and lane.breaker.state is breakers.State.CLOSED and not lane.troubles
            seen = lane.foreseen.get(slot.gpu)
            known = (slot.backend, slot.gpu) in starts or (seen is not None and seen.holds(now))
            can_say = isinstance(lane.place.backend, Foresees)
            if works and slot.gpu in others and not known and can_say:
                # Where nothing waits nobody is asked; what comes before the claim waits for the next tick, which asks.
                lane.foresee = (*lane.foresee, slot.gpu) if waits else lane.foresee
                found.add((slot.backend, slot.gpu))
        return found

    def _mind_breakers(self, now: datetime) -> None:
        """Let what runs came to move the breakers, and keep each that moved: the next process begins with them."""
        outcomes = self.store.outcomes(now)
        for name, lane in self.lanes.items():
            if not lane.busy:
                known = outcomes.get(name, breakers.Outcomes())
                lane.breaker = breakers.looked(lane.breaker, known, now, first_s=self.pace.breaker_s)
            if lane.breaker != self._breakers.get(name, CLOSED):
                found = lane.breaker
                probe("breaker.before_commit")
                self.store.keep_breaker(name, found)
                probe("breaker.after_commit")
                if found.state is not self._breakers.get(name, CLOSED).state:
                    tell("breaker", backend=name, state=found.state, why=found.why, try_at=found.try_at)
                self._breakers[name] = found

    def _shadow(self, now: datetime) -> None:
        """Have some of what ranked at home measured elsewhere, too, as many as the hosts want."""
        if self.rules.shadow <= 0 or now < self._shadow_at:
            return
        self._shadow_at = now + timedelta(seconds=self.pace.shadow_s)
        found = self.store.shadowable(now)
        facts, grounds = (self.store.waiting_facts(now) if found else Facts()), self._grounds()
        for one in found:
            place = placement.shadow_at(one, grounds, self.rules, facts)
            if place is not None and self.store.shadow_once(one, place, now):
                facts = dataclasses.replace(facts, pinned=facts.pinned | {place})
                tell("shadowed", run=one.run, backend=place)

    def _bring_home(
        self, resting: Mapping[str, Lane], attempts: Sequence[OpenAttempt], now: datetime
    ) -> Sequence[OpenAttempt]:
        """Want back what waits elsewhere to be started, where home has room for it: its end is asked for.

        Not to a home that said that it starts nothing soon. That was why it went; its last word holds until its moment
        is near, or what comes next has had it asked again.
        """
        if not any(self._is_away(one) and placement.movable(one) for one in attempts):
            return attempts
        capacity = {name: lane.place.backend.capacity() for name, lane in resting.items()}
        slots = free_slots(
            capacity,
            attempts,
            staff_only=[name for name, lane in resting.items() if not lane.place.untrusted],
            widest={name: lane.place.widest for name, lane in resting.items()},
        )
        starts, rule = self._starts(attempts, now, last=True), self.rules.overflow
        slots = [one for one in slots if not placement.is_late(starts.get((one.backend, one.gpu)), rule, now)]
        done: dict[int, OpenAttempt] = {}
        waiting, answers = self.store.waiting(), self._knocked(resting)
        for attempt, homes in placement.coming_home(slots, self._grounds(), attempts, waiting, answers=answers):
            probe("withdraw.before_wish")
            if self.store.withdraw(attempt, homes, "home has room for it again", now):
                probe("withdraw.after_wish")
                done[attempt.id] = dataclasses.replace(attempt, withdraw_at=now)
                tell("wanted back", run=attempt.run_id, attempt=attempt.number, backend=attempt.backend)
        return [done.get(one.id, one) for one in attempts]

    def _knocked(self, resting: Mapping[str, Lane]) -> set[str]:
        """Homes that are to be tried again and answered since; the others are asked."""
        answers = set()
        for name, lane in resting.items():
            if lane.place.role == "home" and lane.breaker.state is breakers.State.HALF_OPEN:
                lane.knock = lane.breaker.since is None or lane.answered_at < lane.breaker.since
                answers |= set() if lane.knock else {name}
        return answers

    def _is_away(self, attempt: OpenAttempt) -> bool:
        lane = self.lanes.get(attempt.backend)
        return lane is not None and lane.place.role == "overflow"

    def _by_place(self, attempts: Sequence[OpenAttempt]) -> Mapping[str, list[OpenAttempt]]:
        found: dict[str, list[OpenAttempt]] = {}
        for attempt in attempts:
            found.setdefault(attempt.backend, []).append(attempt)
        for name in sorted(set(found) - set(self.lanes) - self._strangers):
            self._strangers.add(name)
            tell(
                "unknown place",
                level="warning",
                backend=name,
                open_attempts=len(found[name]),
                why=f"{STRANGER}; its attempts stay open until one that has it leads, or they are cancelled",
            )
        return found

    def _let_strangers_go(self, by_place: Mapping[str, list[OpenAttempt]], now: datetime) -> None:
        """A cancelled attempt at a place that isn't there any more: nobody can ask it, and its report can't count."""
        for name in set(by_place) - set(self.lanes):
            for attempt in by_place[name]:
                if attempt.cancel_at is not None:
                    end_cancelled(self.store, attempt, now)

    def _calm_s(self, by_place: Mapping[str, list[OpenAttempt]], now: datetime) -> float:
        moments = [now + timedelta(seconds=self.pace.idle_s), self._renew_at]
        if self._untended:
            moments.append(self._tend_at)
        for name, lane in self.lanes.items():
            at = lane.wakes_at(by_place.get(name, ()), now)
            if at is not None:
                moments.append(at)
            if not lane.busy and lane.ready_at > now:
                moments.append(lane.ready_at)
            if self.has_policy and not lane.busy and lane.breaker.try_at is not None:
                moments.append(max(now, lane.breaker.try_at))
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
        wait_s = self.pace.database_back_off_s
        while not self._over.is_set():
            try:
                if self.store.wait_for_news(self.pace.news_s):
                    self.wake.ring()
                wait_s = self.pace.database_back_off_s
            except Exception:  # noqa: BLE001 - only a hint; the main thread meets the same trouble and tells it
                self._over.wait(wait_s)
                wait_s = min(10.0, wait_s * 2)

    def _close(self, listener: threading.Thread) -> None:
        self._over.set()
        tell("stopping", open="in-flight attempts go on and are found again by the next start")
        until = time.monotonic() + self.pace.stop_within_s
        for lane in self.lanes.values():
            lane.close(max(0.1, until - time.monotonic()))
        listener.join(timeout=self.pace.news_s + 3)
        if self.leading:
            with contextlib.suppress(KbslurmError):
                self.store.release_lease(LEASE, self.holder)
        self.metrics.leading.set(0)
        self.leading = None
        if not any(lane.busy for lane in self.lanes.values()):
            self.wake.close()  # a lane that still hangs would ring it
        tell("stopped")


@contextlib.contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set. For the main thread only; the old handlers come back."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_daemon(
    config: Config,
    stop: threading.Event | None = None,
    *,
    once: bool = False,
    log_json: bool = False,
    verbose: bool = False,
) -> None:
    """Serve this configuration until `stop`, or without one until SIGTERM or ^C. What runs then goes on running."""
    logs.set_up(as_json=log_json, level="debug" if verbose else "info")
    with contextlib.ExitStack() as stack:
        stop = stop or stack.enter_context(stop_on_signals())
        places = wiring.places(config)
        store = stack.enter_context(wiring.opened_store(config))
        metrics = Metrics()
        if config.daemon.metrics:
            host, _, port = config.daemon.metrics.rpartition(":")
            stack.enter_context(MetricsPage(metrics.registry, host=host.strip("[]"), port=int(port)))
        pace = Pace(lease_s=config.daemon.lease_ttl_s, idle_s=config.daemon.tick_s)
        Daemon(store, places, pace=pace, metrics=metrics, rules=wiring.rules(config)).run(stop, once=once)
