"""Sweep: work is a predicate over rows (law 8). Whatever a crash left half done is found and finished here. Idempotent.

An attempt without a handle may have been sent (law 2), so we look for its name. If it is found, it is adopted; if two
sweeps some time apart find it nowhere, it is sent again as the same attempt. A cancelled or overdue attempt is killed
again and again until `collect` has evidence that it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import assert_never

from kbslurm.domain.run import AttemptState, Ending, Handle, OpenAttempt, Seen, Sighting
from kbslurm.errors import BackendRefused, BackendTrouble
from kbslurm.flow import score
from kbslurm.flow.collect import CLEAN_SWEEPS, TROUBLES_IN_A_ROW, AttemptNotes, end_cancelled, is_overdue
from kbslurm.flow.launch import deadline_at
from kbslurm.flow.place import Place
from kbslurm.observe.crash_points import crash_point
from kbslurm.observe.logs import teller
from kbslurm.ports import Attempts

tell = teller("sweep")

ASK_AGAIN_S = 30.0
ASK_LATER_S = 2.0
DIED_LAUNCHING = "the daemon ended while launching this"


def sweep(store: Attempts, place: Place, attempts: Sequence[OpenAttempt], notes: AttemptNotes, now: datetime) -> None:
    """Go through a place's open attempts once. Afterwards, `notes.unsent` has those that must be sent (again).

    Errors are raised at the end; an error with one attempt doesn't hold up the others.
    """
    trouble: Exception | None = None
    in_a_row = 0
    for attempt in attempts:
        try:
            if attempt.id in notes.unsent:
                _drop_if_cancelled(store, place, attempt, notes, now)
            elif attempt.state in (AttemptState.INTENT, AttemptState.AMBIGUOUS):
                recover(store, place, attempt, notes, now)
            elif attempt.cancel_at is not None or is_overdue(attempt, now) or is_wanted_back(attempt):
                ask_for_end(place, attempt, notes, now)
            in_a_row = 0
        except BackendTrouble as error:
            if isinstance(error, BackendRefused) and not error.permanent:
                _put_off(place, attempt, notes, now, error.message)
                continue
            trouble, in_a_row = error, in_a_row + 1
            if in_a_row >= TROUBLES_IN_A_ROW:
                break
        except Exception as error:  # noqa: BLE001 - raised below: a bug in one attempt's path is told, the others go on
            trouble = error
    if trouble is not None:
        raise trouble


def is_unsettled(attempt: OpenAttempt, now: datetime) -> bool:
    """Whether sweeping this attempt could do anything."""
    return (
        attempt.state in (AttemptState.INTENT, AttemptState.AMBIGUOUS)
        or attempt.cancel_at is not None
        or is_overdue(attempt, now)
        or is_wanted_back(attempt)
    )


def is_wanted_back(attempt: OpenAttempt) -> bool:
    """Whether it is to go elsewhere. One that has started is left running."""
    return attempt.withdraw_at is not None and attempt.state is AttemptState.SUBMITTED and attempt.started_at is None


def give_back(
    store: Attempts, place: Place, attempt: OpenAttempt, notes: AttemptNotes, now: datetime, *, drains: bool = False
) -> bool:
    """Release a run that certainly wasn't sent to this place, since it was refused each time: the place accepts
    none, or `drains`."""
    refused = attempt.id in notes.unsent and attempt.id in notes.put_off and attempt.id not in notes.resent
    if not refused or attempt.state is not AttemptState.INTENT or attempt.cancel_at is not None:
        return False
    crash_point("withdraw.before_commit")
    why = "is draining" if drains else "accepts no jobs at the moment"
    state = store.give_up(attempt, Ending.WITHDRAWN, f"{place.name} {why}; it wasn't sent", now)
    crash_point("withdraw.after_commit")
    notes.unsent.pop(attempt.id, None)
    tell("given back", run=attempt.run_id, attempt=attempt.number, backend=place.name)
    return state is not None


def unsettled(attempts: Iterable[OpenAttempt], now: datetime) -> list[OpenAttempt]:
    """The attempts that need sweeping."""
    return [attempt for attempt in attempts if is_unsettled(attempt, now)]


def recover(store: Attempts, place: Place, attempt: OpenAttempt, notes: AttemptNotes, now: datetime) -> None:
    """Find out what happened to an attempt that may have been sent."""
    if attempt.swept_at is not None and now - attempt.swept_at < timedelta(seconds=place.sweep_gap_s):
        return
    crash_point("recover.before_find")
    sighting = place.backend.find(attempt.name)
    crash_point("recover.after_find")
    match sighting.seen:
        case Seen.WAITING | Seen.RUNNING | Seen.ENDED:
            notes.told.pop(attempt.id, None)
            _adopt(store, place, attempt, sighting, now)
        case Seen.ABSENT:
            _found_nowhere(store, place, attempt, notes, now)
        case Seen.UNKNOWN:
            pass
        case _:
            assert_never(sighting.seen)


def ask_for_end(place: Place, attempt: OpenAttempt, notes: AttemptNotes, now: datetime) -> None:
    """Tell the backend to kill it, at most twice a minute. Only what `collect` sees proves that it ended."""
    if now < notes.ask_at.get(attempt.id, now):
        return
    crash_point("cancel.before_effect")
    place.backend.cancel(attempt)
    crash_point("cancel.after_effect")
    notes.ask_at[attempt.id] = now + timedelta(seconds=ASK_AGAIN_S)
    tell("asked for the end", run=attempt.run_id, attempt=attempt.number, backend=place.name)


def _put_off(place: Place, attempt: OpenAttempt, notes: AttemptNotes, now: datetime, why: str) -> None:
    notes.ask_at[attempt.id] = now + timedelta(seconds=ASK_LATER_S)
    tell("end put off", run=attempt.run_id, attempt=attempt.number, backend=place.name, why=why)


def _adopt(store: Attempts, place: Place, attempt: OpenAttempt, sighting: Sighting, now: datetime) -> None:
    handle = sighting.handle or attempt.handle or Handle(attempt.name)
    if store.note_handle(attempt, handle, deadline_at(store.work(attempt.id), place, now), now):
        if sighting.seen is not Seen.WAITING:
            store.note_told({attempt.id: {"adopted": True}})  # nobody saw when it was submitted
        tell("adopted", run=attempt.run_id, attempt=attempt.number, backend=place.name, handle=handle)


def _found_nowhere(store: Attempts, place: Place, attempt: OpenAttempt, notes: AttemptNotes, now: datetime) -> None:
    if attempt.state is AttemptState.INTENT and not store.note_ambiguous(attempt, DIED_LAUNCHING, now):
        return
    if not store.note_clean_sweep(attempt, now):
        return
    if attempt.clean_sweeps + 1 < CLEAN_SWEEPS:
        return
    if attempt.cancel_at is not None:
        place.backend.cancel(attempt)  # keeps it from starting if it is on its way
        end_cancelled(store, attempt, now)
    elif is_overdue(attempt, now):
        score.give_up(store, attempt, Ending.VANISHED, "it was never seen anywhere before its deadline", now)
    elif store.note_resend(attempt, now):
        crash_point("recover.after_resend")
        notes.unsent[attempt.id] = notes.resent[attempt.id] = now
        tell("sending again", run=attempt.run_id, attempt=attempt.number, backend=place.name, job=attempt.name)


def _drop_if_cancelled(store: Attempts, place: Place, attempt: OpenAttempt, notes: AttemptNotes, now: datetime) -> None:
    if attempt.cancel_at is None or now < notes.ask_at.get(attempt.id, now):
        return
    place.backend.cancel(attempt)
    end_cancelled(store, attempt, now)
    notes.unsent.pop(attempt.id, None)
