"""Step 6, collect: open attempts become reports or failures, based only on evidence. Next step: `score`.

One batched query per place. Missing is not finished (law 4): what a place doesn't mention, or can't see, stays as it
is, except that a report that is there anyway is the strongest evidence of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, assert_never

from kbslurm.domain import access, waiting
from kbslurm.domain.run import (
    OWN_FAULT,
    AttemptId,
    AttemptState,
    Ending,
    JobName,
    OpenAttempt,
    Seen,
    Sighting,
)
from kbslurm.errors import BackendTrouble
from kbslurm.flow import score
from kbslurm.flow.place import Place
from kbslurm.observe.crash_points import crash_point
from kbslurm.observe.logs import teller
from kbslurm.ports import Attempts, LeavesArtifacts, Results, TellsDoubts, TellsMemory, TellsProgress

tell = teller("collect")

CLEAN_SWEEPS = 2
GONE = frozenset({Ending.CANCELLED, Ending.NO_REPORT, Ending.VANISHED})
TROUBLES_IN_A_ROW = 3
_UNSEEN = Sighting(seen=Seen.UNKNOWN)


@dataclass(kw_only=True)
class AttemptNotes:
    """What one process remembers about its open attempts. None of it is needed: a new process starts with an empty one.

    `ended`: when an attempt was first seen ended without a report. `ask_at`: when to cancel it again. `unsent`:
    attempts that this process knows weren't started, and when to send them (again); `resent`: those of them that may
    have been sent before, though found nowhere. `told`: the progress that was last stored for each.
    """

    ended: dict[AttemptId, datetime] = field(default_factory=dict)
    ask_at: dict[AttemptId, datetime] = field(default_factory=dict)
    unsent: dict[AttemptId, datetime] = field(default_factory=dict)
    put_off: dict[AttemptId, int] = field(default_factory=dict)
    resent: dict[AttemptId, datetime] = field(default_factory=dict)
    told: dict[AttemptId, Mapping[str, Any]] = field(default_factory=dict)

    def forget_all_but(self, attempts: Sequence[OpenAttempt]) -> None:
        """Forget attempts that are no longer open."""
        still = {attempt.id for attempt in attempts}
        for memory in (self.ended, self.ask_at, self.unsent, self.put_off, self.resent, self.told):
            for gone in [known for known in memory if known not in still]:
                del memory[gone]


def collect(store: Results, place: Place, attempts: Sequence[OpenAttempt], notes: AttemptNotes, now: datetime) -> int:
    """Check all started attempts of a place once and settle those with an outcome; returns how many.

    Errors are raised after the work is done, so that the caller backs off; nothing is concluded from them. An error
    with one attempt doesn't keep the others from being checked.
    """
    started = [attempt for attempt in attempts if attempt.state in (AttemptState.SUBMITTED, AttemptState.RUNNING)]
    if not started:
        return 0
    crash_point("collect.before_poll")
    trouble: Exception | None = None
    sightings: Mapping[JobName, Sighting] = {}
    try:
        sightings = place.backend.poll(started)
    except BackendTrouble as error:
        trouble = error  # the controller is unreachable, but there may still be report files
    crash_point("collect.after_poll")
    settled, in_a_row = 0, 0
    for attempt in started:
        try:
            settled += settle(store, place, attempt, sightings.get(attempt.name, _UNSEEN), notes, now)
            in_a_row = 0
        except BackendTrouble as error:
            trouble, in_a_row = error, in_a_row + 1
            if in_a_row >= TROUBLES_IN_A_ROW:
                break
        except Exception as error:  # noqa: BLE001 - raised below: a bug in one attempt's path is told, the others go on
            trouble = error
    _hear(store.attempts, place, started, sightings, notes)
    if trouble is not None:
        raise trouble
    return settled


def _hear(
    store: Attempts,
    place: Place,
    started: Sequence[OpenAttempt],
    sightings: Mapping[JobName, Sighting],
    notes: AttemptNotes,
) -> None:
    """Store the progress of running attempts and the expected start of waiting ones, if anything is new."""
    changes: dict[AttemptId, Mapping[str, Any]] = {}
    for attempt in started:
        seen = sightings.get(attempt.name, _UNSEEN)
        if seen.seen is Seen.WAITING:
            at = seen.expected_at
            said: dict[str, Any] = {
                "expected_at": None if at is None else at.isoformat(),
                "waits": seen.reason.replace("\0", ""),
            }
        elif seen.seen is Seen.RUNNING and isinstance(place.backend, TellsProgress):
            said = {"progress": access.shown_progress(place.backend.progress(attempt))}
        elif seen.seen in (Seen.UNKNOWN, Seen.ABSENT) and (why := _doubt(place, attempt, seen)):
            said = {**notes.told.get(attempt.id, {}), "waits": waiting.silent(why.replace("\0", ""))}
        else:
            continue
        if said != notes.told.get(attempt.id, {"progress": None}):
            changes[attempt.id] = notes.told[attempt.id] = said
    if changes:
        store.note_told(changes)


def _doubt(place: Place, attempt: OpenAttempt, seen: Sighting) -> str:
    """Why nothing is known about a submitted job, if its place says so."""
    if attempt.state is not AttemptState.SUBMITTED:
        return ""
    if seen.seen is Seen.ABSENT:
        return seen.reason
    return place.backend.doubt(attempt.name) if isinstance(place.backend, TellsDoubts) else ""


def collect_late(store: Attempts, place: Place, dead: Sequence[OpenAttempt], now: datetime) -> int:
    """Store reports of attempts that were given up: evidence, never a score. Returns how many."""
    late = 0
    for attempt in dead:
        sealed = place.backend.collect(attempt)
        if sealed is not None:
            score.keep_stale(store, attempt, sealed, "it arrived after its attempt had been given up", now)
            late += 1
    return late


def settle(
    store: Results, place: Place, attempt: OpenAttempt, sighting: Sighting, notes: AttemptNotes, now: datetime
) -> bool:
    """Store what this sighting proves; returns whether the attempt has ended."""
    match sighting.seen:
        case Seen.WAITING | Seen.RUNNING:
            notes.ended.pop(attempt.id, None)
            _note(store.attempts, attempt, sighting, now)
            return _is_stray(place, attempt, sighting, now) and _end(
                store, place, attempt, sighting, Ending.TIMEOUT, now
            )
        case Seen.UNKNOWN:
            return _read(store, place, attempt, now)
        case Seen.ABSENT:
            return _read(store, place, attempt, now) or _vanished(store, place, attempt, sighting, now)
        case Seen.ENDED:
            if sighting.node is not None and sighting.node != attempt.node:
                # A job may be over before it is first seen, and nodes are excluded based on what ended there (law 5).
                store.attempts.note_seen(attempt, sighting, now)
            return _read(store, place, attempt, now) or _ended(store, place, attempt, sighting, notes, now)
        case _:
            assert_never(sighting.seen)


def is_overdue(attempt: OpenAttempt, now: datetime) -> bool:
    """Whether its time is up; the backend's own limit should have killed it long before."""
    return attempt.deadline_at is not None and now > attempt.deadline_at


def _read(store: Results, place: Place, attempt: OpenAttempt, now: datetime) -> bool:
    sealed = place.backend.collect(attempt)
    if sealed is None:
        return False
    crash_point("collect.after_read")
    if attempt.cancel_at is not None:
        score.keep_stale(store.attempts, attempt, sealed, "it was cancelled before this report was read", now)
        return end_cancelled(store.attempts, attempt, now)
    brought, peak = partial(_artifacts, place, attempt), place.peaks.get(attempt.gpu)
    least = place.ranked_min_isolation
    starved = partial(_starved, store.attempts, place, attempt)
    score.score(store, attempt, sealed, now, least_isolation=least, brought=brought, peak=peak, starved=starved)
    return True


def _artifacts(place: Place, attempt: OpenAttempt, names: Sequence[str]) -> Mapping[str, bytes]:
    """A profile's files, if the place brings them back. Errors with them don't affect the report."""
    if not isinstance(place.backend, LeavesArtifacts):
        return {}
    try:
        return place.backend.artifacts(attempt, names)
    except BackendTrouble as error:
        tell("no artifacts", level="warning", run=attempt.run_id, backend=place.name, why=error.message)
        return {}


def _ended(
    store: Results, place: Place, attempt: OpenAttempt, sighting: Sighting, notes: AttemptNotes, now: datetime
) -> bool:
    """It ended without a report, which may only be late. After the grace period, the kind of ending decides."""
    if sighting.ending is Ending.WITHDRAWN and attempt.keeper is not None:
        return _end(store, place, attempt, sighting, Ending.WITHDRAWN, now)  # its keeper never began: no report comes
    first = min(notes.ended.setdefault(attempt.id, now), attempt.over_at or now)
    if attempt.cancel_at is None and now - first < timedelta(seconds=place.grace_s):
        if attempt.over_at is None:  # the next process goes on from here
            store.attempts.note_seen(attempt, sighting, now)
        return False
    return _end(store, place, attempt, sighting, sighting.ending or Ending.NO_REPORT, now)


def _end(store: Results, place: Place, attempt: OpenAttempt, sighting: Sighting, ending: Ending, now: datetime) -> bool:
    if attempt.cancel_at is not None:
        return end_cancelled(store.attempts, attempt, now)
    if ending is Ending.CANCELLED and is_overdue(attempt, now) and _began(attempt, sighting):
        ending = Ending.TIMEOUT  # we killed it ourselves, at its deadline
    if ending is Ending.REPORTED:
        ending = Ending.NO_REPORT
    if attempt.withdraw_at is not None and ending in GONE:
        ending = Ending.WITHDRAWN  # we killed it ourselves, so that its run can go elsewhere
    short = _given_too_little(store.attempts, place, attempt, sighting.granted_mb) if ending is Ending.MEMORY else None
    if short:
        score.give_up(store.attempts, attempt, Ending.MISCONFIGURED, short, now)
    elif ending in OWN_FAULT:
        score.score_own_fault(store, attempt, sighting, ending, now)
    else:
        is_usual = (ending is Ending.WITHDRAWN and attempt.keeper is None) or not sighting.reason
        why = _usual_reason(ending, sighting) if is_usual else sighting.reason
        score.give_up(store.attempts, attempt, ending, why, now)
    return True


def _starved(store: Attempts, place: Place, attempt: OpenAttempt) -> str | None:
    """The same for a job whose judge lived on: the kernel ends the largest process, which is the submission's."""
    if not isinstance(place.backend, TellsMemory):
        return None
    return _given_too_little(store, place, attempt, place.backend.ran_out_with_mb(attempt.name))


def _given_too_little(store: Attempts, place: Place, attempt: OpenAttempt, granted_mb: int | None) -> str | None:
    """Why a job that was killed for its memory use isn't its submission's fault: the scheduler gave it less than was
    requested. Only what the scheduler granted counts, which no submission can choose."""
    if granted_mb is None or place.needs_mb is None:
        return None
    needs_mb = place.needs_mb(store.work(attempt.id))
    if granted_mb >= needs_mb:
        return None
    return (
        f"the job was killed for its memory use, but {place.name} had given it {granted_mb} MB where its"
        f" problem needs {needs_mb} MB: this isn't the submission's fault; a host must correct the site's memory first"
    )


def end_cancelled(store: Attempts, attempt: OpenAttempt, now: datetime) -> bool:
    """Close an attempt that was cancelled and is proved to have ended."""
    done = store.end_cancelled(attempt, now)
    crash_point("cancel.after_commit")
    tell("cancelled", run=attempt.run_id, attempt=attempt.number, backend=attempt.backend)
    return done


def _vanished(store: Results, place: Place, attempt: OpenAttempt, sighting: Sighting, now: datetime) -> bool:
    """Every source was asked and none knows it. Believed only when this happens twice, some time apart."""
    if attempt.swept_at is not None and now - attempt.swept_at < timedelta(seconds=place.sweep_gap_s):
        return False
    if attempt.clean_sweeps + 1 < CLEAN_SWEEPS:
        store.attempts.note_clean_sweep(attempt, now)
        return False
    return _end(store, place, attempt, sighting, Ending.VANISHED, now)


def _note(store: Attempts, attempt: OpenAttempt, sighting: Sighting, now: datetime) -> None:
    """Store a sighting that says something new; repeated ones cost nothing."""
    running = sighting.seen is Seen.RUNNING
    is_new = (
        (running and attempt.state is not AttemptState.RUNNING)
        or (sighting.node is not None and sighting.node != attempt.node)
        or (running and attempt.started_at is None and sighting.started_at is not None)
        or attempt.clean_sweeps > 0
        or attempt.over_at is not None
    )
    if is_new and store.note_seen(attempt, sighting, now):
        told = {"why": sighting.reason} if sighting.reason else {}
        tell("seen", run=attempt.run_id, attempt=attempt.number, backend=attempt.backend, seen=sighting.seen, **told)


def _is_stray(place: Place, attempt: OpenAttempt, sighting: Sighting, now: datetime) -> bool:
    """Seen running so long after its deadline that killing it has plainly failed."""
    if attempt.deadline_at is None or sighting.seen is not Seen.RUNNING:
        return False
    return now > attempt.deadline_at + timedelta(seconds=place.stray_s)


def _began(attempt: OpenAttempt, sighting: Sighting) -> bool:
    return attempt.started_at is not None or sighting.started_at is not None


def _usual_reason(ending: Ending, sighting: Sighting) -> str:
    node = f" on {sighting.node}" if sighting.node else ""
    status = f" with exit status {sighting.exit_code}" if sighting.exit_code is not None else ""
    match ending:
        case Ending.NODE_FAILURE:
            return f"the node failed{node}"
        case Ending.PREEMPTED:
            return f"the job was preempted{node}"
        case Ending.BOOT_FAILURE:
            return f"the node didn't boot{node}"
        case Ending.IMAGE:
            return f"the container wouldn't start{node}"
        case Ending.NO_REPORT | Ending.REPORTED:
            return f"the job ended{node}{status} and left no report"
        case Ending.BAD_REPORT:
            return "the report can't be trusted"
        case Ending.UNSTEADY:
            return f"the baseline's time was abnormal{node}"
        case Ending.CANCELLED:
            return f"the job was killed from outside{node}"
        case Ending.REFUSED:
            return "the backend refused the job"
        case Ending.WITHDRAWN:
            return "it was withdrawn before it started, to run elsewhere"
        case Ending.VANISHED:
            return "every source was asked twice and none knows the job"
        case Ending.MISCONFIGURED:
            return f"the job was given less than its problem needs{node}"
        case Ending.KEEPER_LEFT:
            return f"the warm worker that it ran in went{node}"
        case Ending.CHECK_DIED:
            return f"the problem's check didn't survive its answer{node}"
        case Ending.TIMEOUT | Ending.MEMORY:
            return f"the job was killed at its limit{node}"
        case _:
            assert_never(ending)
