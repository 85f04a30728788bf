"""A lane: the thread that makes all calls to one place's backend, and what it knows about that place.

After an error a lane pauses for a while, longer each time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from queue import SimpleQueue
from typing import Any

from kbslurm.daemon.clock import NEVER, went_back
from kbslurm.daemon.timing import back_off_s
from kbslurm.daemon.wake import Wake
from kbslurm.domain import breaker as breakers
from kbslurm.domain.breaker import CLOSED, Breaker
from kbslurm.domain.keepers import Keeper, KeeperEnding
from kbslurm.domain.placement import Planned
from kbslurm.domain.run import AttemptState, JobName, OpenAttempt, Seen, new_job_name
from kbslurm.errors import BackendTrouble, KbslurmError
from kbslurm.flow import keepers as keeping
from kbslurm.flow.collect import AttemptNotes, collect, collect_late
from kbslurm.flow.launch import Launched, foresee, is_settled, launch, say_waits
from kbslurm.flow.place import Place
from kbslurm.flow.sweep import give_back, is_wanted_back, sweep, unsettled
from kbslurm.observe.logs import teller
from kbslurm.observe.metrics import Metrics
from kbslurm.ports import (
    Backend,
    Clock,
    Closes,
    KeepsWarm,
    PrunesFiles,
    RingsDoorbell,
    Store,
    TellsLapse,
    TellsLimits,
    TellsPace,
)

tell = teller("daemon")

LONGEST_BACK_OFF_S = 60.0
LONGEST_PUT_OFF_S = 60.0
PRUNE_EVERY_S = 3_600.0
FORESEE_EVERY_S = 60.0
FORESEE_AGAIN_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A lane's work for one turn: its open attempts from the database, those just claimed for it, and those given up
    recently. `give_back`: what it has certainly not sent goes elsewhere; `drained`: the same of these GPU types, since
    hosts let them drain. `knock`: check whether the place answers.
    `foresee`: GPU types for which to predict when it would start the next run. `keepers`: its open keepers, if they
    are to be tended."""

    attempts: Sequence[OpenAttempt]
    claimed: Sequence[OpenAttempt]
    poll: bool
    sweep: bool
    dead: Sequence[OpenAttempt] = ()
    give_back: bool = False
    drained: Collection[str] = ()
    knock: bool = False
    foresee: Sequence[str] = ()
    keepers: Sequence[Keeper] = ()


@dataclass(frozen=True, kw_only=True)
class Foreseen:
    """A place's prediction of when it would start the next run of a GPU type; `at` None: it has none."""

    at: datetime | None
    asked_at: datetime

    def holds(self, now: datetime) -> bool:
        """Whether it is too early to ask again: a place that can't say is asked less often."""
        return now < self.asked_at + timedelta(seconds=FORESEE_AGAIN_S if self.at is None else FORESEE_EVERY_S)


@dataclass(frozen=True, kw_only=True)
class Shut:
    """A GPU type for which a place refuses every run at the moment: until when none is tried, and how often in a row
    one was."""

    why: str
    times: int
    until: datetime


@dataclass(kw_only=True)
class Lane:
    """One place's worker. The main thread reads and writes its fields only while it isn't `busy`, except `rung`.

    `changed`: its place by a newer configuration, taken when it can be. `leaving`: the newer one doesn't have it.
    """

    store: Store
    place: Place
    clock: Clock
    wake: Wake
    metrics: Metrics
    places: Sequence[Place] = ()
    changed: Place | None = None
    leaving: bool = False
    changed_at: datetime = NEVER
    notes: AttemptNotes = field(default_factory=AttemptNotes)
    keeper_notes: keeping.KeeperNotes = field(default_factory=keeping.KeeperNotes)
    rung: bool = True
    busy: bool = False
    troubles: int = 0
    in_vain: int = 0
    knock: bool = False
    foresee: Sequence[str] = ()
    foreseen: Mapping[str, Foreseen] = field(default_factory=dict)
    shut: Mapping[str, Shut] = field(default_factory=dict)
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
        backend = self.place.backend
        self.doorbell: int | None = backend.doorbell() if isinstance(backend, RingsDoorbell) else None

    def next_turn(
        self,
        attempts: Sequence[OpenAttempt],
        claimed: Sequence[OpenAttempt],
        dead: Sequence[OpenAttempt],
        now: datetime,
        *,
        give_back: bool = False,
        drained: Collection[str] = (),
        keepers: Sequence[Keeper] = (),
    ) -> Turn | None:
        """What this lane should do now, if anything. With nothing open it makes no calls: an idle site isn't
        bothered."""
        foresee, self.foresee = self.foresee, ()
        if not attempts and not claimed and not dead and not self.knock and not foresee and not keepers:
            return None
        due = self.rung or now >= self.poll_at
        poll = bool(attempts or keepers) and due
        swept = bool(attempts) and (now >= self.sweep_at or any(at <= now for at in self._cancels_due(attempts)))
        launches = bool(claimed) or self._has_due_launches(now)
        give_back = give_back and any(attempt.id in self.notes.put_off for attempt in attempts)
        drained = {a.gpu for a in attempts if a.gpu in drained and a.id in self.notes.put_off}
        knock, self.knock = self.knock and not launches, False
        sweeps = swept and self._has_unsettled(attempts, now)
        keep = bool(keepers) and (due or keeping.is_due(keepers, self.keeper_notes, now))
        if not (poll or launches or dead or give_back or drained or knock or foresee or sweeps or keep):
            return None
        turn = Turn(attempts=attempts, claimed=claimed, dead=dead, poll=poll, sweep=swept)
        tended = keepers if keep else ()
        turn = dataclasses.replace(turn, give_back=give_back, drained=drained)
        return dataclasses.replace(turn, knock=knock, foresee=foresee, keepers=tended)

    def wakes_at(
        self, attempts: Sequence[OpenAttempt], now: datetime, *, keepers: Sequence[Keeper] = ()
    ) -> datetime | None:
        """When it next has something to do, if nothing else happens."""
        if self.busy or not (attempts or keepers):
            return None
        unsent = [*self.notes.unsent.values(), *self.keeper_notes.unsent.values()]
        moments = [self.poll_at, *unsent, *self._cancels_due(attempts)]
        if self._has_unsettled(attempts, now):
            moments.append(self.sweep_at)
        return max(self.ready_at, min(moments))

    def begin(self, turn: Turn) -> None:
        """Give it a turn. It rings when it is done."""
        self.busy = True
        if turn.poll:
            self.rung = False
        self._turns.put(turn)

    def keep_time(self, now: datetime) -> None:
        """After the clock was set back, everything is due now, not when the clock gets there again."""
        if went_back(self.known_at, now):
            self.ready_at = self.poll_at = self.sweep_at = self.prune_at = NEVER
            self.notes.unsent = dict.fromkeys(self.notes.unsent, now)
            self.notes.ended.clear()
            self.notes.ask_at.clear()
            self.foreseen, self.shut = {}, {}
        self.known_at = now

    def told(self) -> dict[str, Any]:
        """Its state, for the leader's published state."""
        backend = self.place.backend
        return {
            "troubles": self.troubles,
            "in_vain": self.in_vain,
            "why": self.why if self.troubles else "",
            "lapse": backend.lapse() if isinstance(backend, TellsLapse) else "",
            "pace": dataclasses.asdict(backend.pace_report()) if isinstance(backend, TellsPace) else None,
            "limits": _limits(backend),
            "kind": self.place.kind,
            "home": self.place.home,
            "slots": dict(self.place.backend.capacity()),
            "widest": dict(self.place.widest),
            "staff_only": not self.place.untrusted,
            "role": self.place.role,
            "classes": {gpu: self.place.for_policy().class_of(gpu) for gpu in self.place.backend.capacity()},
            "prices": dict(self.place.prices),
            "breaker": breakers.told(self.breaker),
            "shut": {gpu: shut.why for gpu, shut in self.shut.items()},
        }

    def expects(self, attempts: Sequence[OpenAttempt], now: datetime, *, last: bool = False) -> Mapping[str, Planned]:
        """When the place plans to start our first waiting job, by GPU type, if it has said so; otherwise its prediction
        for the next one. `last`: its latest prediction, however old."""
        found: dict[str, Planned] = {}
        for attempt in attempts:
            said = self.notes.told.get(attempt.id, {}).get("expected_at")
            if attempt.backend == self.place.name and attempt.state is AttemptState.SUBMITTED and said:
                at = datetime.fromisoformat(said)
                if attempt.gpu not in found or at < found[attempt.gpu].at:
                    found[attempt.gpu] = Planned(at=at, by="squeue --start")
        for gpu, seen in self.foreseen.items():
            if gpu not in found and seen.at is not None and (last or seen.holds(now)):
                found[gpu] = Planned(at=seen.at, by="sbatch --test-only")
        return found

    def forget(self) -> None:
        """Start like a new process: since this one last led, others may have."""
        self.notes, self.rung, self.troubles, self.in_vain = AttemptNotes(), True, 0, 0
        self.keeper_notes = keeping.KeeperNotes()
        self.foresee, self.foreseen, self.shut = (), {}, {}
        self.ready_at = self.poll_at = self.sweep_at = NEVER

    def go_on_from(self, told: Mapping[str, Any]) -> None:
        """Count failures in a row on from what an earlier process told."""
        self.troubles, self.in_vain = int(told.get("troubles", 0)), int(told.get("in_vain", 0))
        self.why = str(told.get("why", ""))

    def move(self, place: Place) -> None:
        """Go on with this place, by a newer configuration. What is known of its attempts stays."""
        before, self.place, self.changed = self.place.backend, place, None
        backend = place.backend
        self.doorbell = backend.doorbell() if isinstance(backend, RingsDoorbell) else None
        self.foreseen, self.shut, self.rung = {}, {}, True
        self.ready_at = self.poll_at = NEVER
        if isinstance(before, Closes):
            before.close()

    def close(self, within_s: float) -> None:
        """Let it finish what it is doing, for at most this long."""
        self._turns.put(None)
        self._thread.join(timeout=within_s)
        if self._thread.is_alive():
            tell("left a hung call behind", level="warning", backend=self.place.name)
        elif isinstance(self.place.backend, Closes):
            self.place.backend.close()

    def _has_unsettled(self, attempts: Sequence[OpenAttempt], now: datetime) -> bool:
        return any(attempt.id not in self.notes.unsent for attempt in unsettled(attempts, now))

    def _cancels_due(self, attempts: Sequence[OpenAttempt]) -> list[datetime]:
        """When a sweep should act on pending cancels; finding out whether a job without a handle exists has its own
        schedule."""
        return [
            self.notes.ask_at.get(a.id, NEVER)
            for a in attempts
            if (a.cancel_at is not None or is_wanted_back(a)) and (a.id in self.notes.unsent or a.handle)
        ]

    def _has_due_launches(self, now: datetime) -> bool:
        return any(at <= now for at in self.notes.unsent.values())

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
            tell("a bug", level="error", backend=self.place.name, error=repr(error), trace=trace_of(error))
            self._back_off(repr(error), None)
        self.metrics.backing_off.labels(self.place.name).set(1 if self.troubles else 0)

    def _walk(self, turn: Turn) -> None:
        now = self.clock.now()
        self.notes.forget_all_but([*turn.attempts, *turn.claimed])
        self.notes.unsent.update({attempt.id: now for attempt in turn.claimed})
        for attempt in turn.attempts:
            if turn.give_back or attempt.gpu in turn.drained:
                drains = attempt.gpu in turn.drained
                give_back(self.store.attempts, self.place, attempt, self.notes, now, drains=drains)
        # An error in one of these must not hold up the others.
        with contextlib.ExitStack() as steps:
            steps.callback(self._tidy, turn, now)
            steps.callback(self._collect, turn)
            steps.callback(self._foresee, turn)
            steps.callback(self._keep, turn)
            steps.callback(self._launch_due, [*turn.attempts, *turn.claimed])
            steps.callback(self._knock, turn)
            self._sweep(turn, now)

    def _knock(self, turn: Turn) -> None:
        """Ask for a job that doesn't exist: a place that confirms that has checked everywhere, so it works."""
        if turn.knock and self.place.backend.find(new_job_name()).seen is Seen.ABSENT:
            self.answered_at = self.clock.now()

    def _foresee(self, turn: Turn) -> None:
        """The waiting runs go on without an answer if there is none, so that is noted first."""
        for gpu in turn.foresee:
            now = self.clock.now()
            self.foreseen = {**self.foreseen, gpu: Foreseen(at=None, asked_at=now)}
            at = foresee(self.store.queue, self.place, gpu, now)
            self.foreseen = {**self.foreseen, gpu: Foreseen(at=at, asked_at=now)}

    def _keep(self, turn: Turn) -> None:
        """Send keepers, see how they are, and let them go."""
        if turn.keepers:
            keeping.tend(self.store.keepers, self.place, turn.keepers, self.keeper_notes, self.clock.now())

    def _sweep(self, turn: Turn, now: datetime) -> None:
        """Before launches: on a site with a call budget, cancelling comes before giving it more jobs."""
        if turn.sweep:
            self.sweep_at = self.clock.now() + timedelta(seconds=max(0.05, self.place.sweep_gap_s))
            sweep(self.store.attempts, self.place, unsettled(turn.attempts, now), self.notes, self.clock.now())

    def _collect(self, turn: Turn) -> None:
        if turn.poll:
            self.poll_at = self.clock.now() + timedelta(seconds=self.place.poll_s)
            if turn.attempts:
                settled = collect(self.store, self.place, turn.attempts, self.notes, self.clock.now())
                self.metrics.settled.labels(self.place.name).inc(settled)

    def _tidy(self, turn: Turn, now: datetime) -> None:
        collect_late(self.store.attempts, self.place, turn.dead, now)
        if now >= self.prune_at:
            self.prune_at = now + timedelta(seconds=PRUNE_EVERY_S)
            keep = {attempt.name for attempt in (*turn.attempts, *turn.claimed)}
            self._prune(now - timedelta(seconds=self.place.keep_s), keep)

    def _prune(self, before: datetime, keep: Collection[JobName]) -> None:
        """Let a backend that keeps files remove those of attempts that ended long ago."""
        backend = self.place.backend
        gone = backend.prune(before, keep=keep) if isinstance(backend, PrunesFiles) else 0
        if gone:
            tell("pruned", backend=self.place.name, attempts=gone)
        if self.place.warm and isinstance(backend, KeepsWarm):
            held = {one.name for one in self.store.keepers.open()}
            if left := backend.prune_keepers(before, keep=held):
                tell("pruned", backend=self.place.name, keepers=left)

    def _launch_due(self, attempts: Sequence[OpenAttempt]) -> None:
        came_of: list[Launched] = []
        with contextlib.ExitStack() as at_last:
            at_last.callback(self._judge_launches, came_of)
            self._launch_each(attempts, came_of)

    def _judge_launches(self, came_of: Sequence[Launched]) -> None:
        """One accepted launch shows that the place works; if none was and one failed, it counts as a failure."""
        if Launched.SUBMITTED in came_of:
            self.in_vain, self.breaker = 0, breakers.launched(self.breaker)
        elif Launched.AWAY in came_of or Launched.AMBIGUOUS in came_of:
            self.in_vain += 1
            why = "a job sent there was refused, or it is unclear whether it was accepted"
            self._fails(self.in_vain, why)

    def _fails(self, in_a_row: int, why: str) -> None:
        self.breaker = breakers.failed(self.breaker, in_a_row, why, self.clock.now(), first_s=self.breaker_s)

    def _launch_each(self, attempts: Sequence[OpenAttempt], came_of: list[Launched]) -> None:
        """Oldest first, those that were refused for a reason of their own last: they are no measure for the others."""
        for attempt in sorted(attempts, key=lambda one: self.notes.put_off.get(one.id, 0)):
            now = self.clock.now()
            due = self.notes.unsent.get(attempt.id)
            if due is None or due > now or attempt.cancel_at is not None:
                continue
            if (shut := self.shut.get(attempt.gpu)) is not None and now < shut.until:
                self._wait_for(shut, [attempt])
                continue
            # From here on it may have been sent: if this dies or fails, the sweep looks for it by name.
            del self.notes.unsent[attempt.id]
            came = launch(self.store.attempts, self.place, attempt, now, others=self.places, told=self.notes.told)
            came_of.append(came)
            self.metrics.launches.labels(self.place.name, came).inc()
            if came is Launched.SUBMITTED:
                self._open(attempt.gpu, attempts)
            elif came is Launched.NOT_WARM and attempt.keeper is not None:
                # It is no use as it is; if the policy still wants one, it starts another.
                why = "it didn't take a run that was given to it"
                self.store.keepers.drain(attempt.keeper.id, KeeperEnding.DRAINED, why, self.clock.now())
            elif came in (Launched.SHUT, Launched.AWAY):
                self._shut(attempt)
            elif not is_settled(came):
                self._put_off(attempt)

    def _shut(self, attempt: OpenAttempt) -> None:
        """No run for this GPU type is accepted at the moment: one tries again later, the others wait for it."""
        before = self.shut.get(attempt.gpu)
        times = before.times + 1 if before else 1
        until = self.clock.now() + timedelta(seconds=self._put_off_s(times))
        why = str(self.notes.told.get(attempt.id, {}).get("waits", ""))
        self.shut = {**self.shut, attempt.gpu: Shut(why=why, times=times, until=until)}
        self._wait_for(self.shut[attempt.gpu], [attempt])

    def _wait_for(self, shut: Shut, attempts: Sequence[OpenAttempt]) -> None:
        for attempt in attempts:
            self.notes.unsent[attempt.id] = shut.until
            self.notes.put_off.setdefault(attempt.id, 0)
        say_waits(self.store.attempts, attempts, shut.why, self.notes.told)

    def _open(self, gpu: str, attempts: Sequence[OpenAttempt]) -> None:
        """One was accepted: the others that waited for it are due now."""
        if gpu in self.shut:
            self.shut = {name: shut for name, shut in self.shut.items() if name != gpu}
            now = self.clock.now()
            waited = [one.id for one in attempts if one.gpu == gpu and self.notes.put_off.get(one.id) == 0]
            self.notes.unsent |= {known: now for known in waited if known in self.notes.unsent}

    def _put_off(self, attempt: OpenAttempt) -> None:
        times = self.notes.put_off.get(attempt.id, 0) + 1
        self.notes.put_off[attempt.id] = times
        self.notes.unsent[attempt.id] = self.clock.now() + timedelta(seconds=self._put_off_s(times))

    def _put_off_s(self, times: int) -> float:
        first_s = 2.0 * min(1.0, self.place.sweep_gap_s)  # a place that is polled often is also retried soon
        return back_off_s(times, first_s=first_s, most_s=LONGEST_PUT_OFF_S)

    def _back_off(self, why: str, retry_after_s: float | None) -> None:
        self.troubles += 1
        self.why = why
        self._fails(self.troubles, why)
        self.metrics.trouble.labels(self.place.name).inc()
        usual_s = back_off_s(self.troubles, first_s=1.0, most_s=LONGEST_BACK_OFF_S)
        wait_s = usual_s if retry_after_s is None else retry_after_s
        self.ready_at = self.clock.now() + timedelta(seconds=wait_s)
        tell("trouble", level="warning", backend=self.place.name, why=why, again_in_s=wait_s)


def trace_of(error: BaseException) -> str:
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " > ".join(frames)


def _limits(backend: Backend) -> list[dict[str, Any]]:
    """What is left of the service's limits, as JSON."""
    told = backend.limits() if isinstance(backend, TellsLimits) else ()
    return [
        dataclasses.asdict(one) | {"resets_at": one.resets_at.isoformat() if one.resets_at else None} for one in told
    ]
