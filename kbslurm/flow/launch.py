"""Step 4, launch: a rendered job is started. Its row is already committed (law 2). Next: the harness, then `collect`.

Possible outcomes, and what is stored:
  a handle               → the attempt is SUBMITTED
  refused permanently    → the run waits for another place that has what it needs, or is FAILED, with the reason
  refused for now        → why; the attempt stays INTENT and is sent again later
  every run is refused   → the same, and the others wait with it
  the place is down      → the same, and the run may be given to another place
  not into its keeper    → the run is queued again, and becomes a job of its own
  anything else          → AMBIGUOUS: perhaps started; `sweep` checks before it is sent again
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, assert_never

from kbslurm.domain import waiting
from kbslurm.domain.manifest import time_limit_s
from kbslurm.domain.run import AttemptId, Ending, OpenAttempt, Work
from kbslurm.errors import BackendRefused, BackendTrouble, Invalid, Misconfigured
from kbslurm.flow import render
from kbslurm.flow.place import Place
from kbslurm.observe.crash_points import crash_point
from kbslurm.observe.logs import teller
from kbslurm.ports import Attempts, Foresees, Queue

tell = teller("launch")

WARM_PATIENCE_S = 120.0  # a keeper is free when it gets a run, so it starts at once or not at all


class Launched(StrEnum):
    """The outcome of a launch."""

    SUBMITTED = "submitted"
    LATER = "later"
    SHUT = "shut"
    AWAY = "away"
    AMBIGUOUS = "ambiguous"
    REFUSED = "refused"
    NOT_WARM = "not_warm"


def launch(
    store: Attempts,
    place: Place,
    attempt: OpenAttempt,
    now: datetime,
    *,
    others: Sequence[Place] = (),
    told: dict[AttemptId, Mapping[str, Any]] | None = None,
) -> Launched:
    """Send this attempt's job. Whatever the backend does, the database then says what is known about it, and no more.

    `others`: where the run may go instead if this place always refuses it. `told`: what is stored about why attempts
    wait; a reason that is already there isn't stored again.
    """
    work = store.work(attempt.id)
    elsewhere = [other.name for other in others if other.name != place.name and other.fits(work)]
    if not place.admits(work):
        why = f"{place.name} only runs staff's submissions: it can't isolate others"
        return _refused(store, attempt, why, now, elsewhere)
    try:
        job = render.job(work, place)
    except Misconfigured as error:
        return _refused(store, attempt, error.message, now, elsewhere)
    except Invalid as error:
        return _refused(store, attempt, error.message, now)
    except Exception as error:  # noqa: BLE001 - rendering is pure: it would fail for ever, and hold up the others
        return _refused(
            store, attempt, f"a bug in kbslurm while rendering the job: {type(error).__name__}: {error}", now
        )
    crash_point("launch.before_submit")
    try:
        handle = place.backend.submit(job)
    except BackendRefused as error:
        if attempt.keeper is not None:
            return _not_warm(store, attempt, error.message, now)
        if error.permanent:
            return _refused(store, attempt, error.message, now, elsewhere)
        fix = {"fix": error.hint} if error.hint else {}
        tell("put off", run=attempt.run_id, attempt=attempt.number, backend=place.name, why=error.message, **fix)
        say_waits(store, [attempt], waiting.put_off(error.message, together=error.together), told)
        return Launched.AWAY if error.away else Launched.SHUT if error.together else Launched.LATER
    except BackendTrouble as error:
        return _unclear(store, attempt, error.message, now, told)
    except Exception as error:  # noqa: BLE001 - any other end means "perhaps started", and must be written down so
        return _unclear(store, attempt, f"{place.name}: {type(error).__name__}: {error}", now, told)
    crash_point("launch.after_submit")
    store.note_handle(attempt, handle, deadline_at(work, place, now), now)
    if told is not None:
        told.pop(attempt.id, None)
    crash_point("launch.after_note")
    tell("launched", run=attempt.run_id, attempt=attempt.number, backend=place.name, job=attempt.name, handle=handle)
    return Launched.SUBMITTED


def say_waits(
    store: Attempts,
    attempts: Sequence[OpenAttempt],
    why: str,
    told: dict[AttemptId, Mapping[str, Any]] | None,
) -> None:
    """Store why these attempts wait, where it isn't known yet."""
    told = {} if told is None else told
    why = why.replace("\0", "")
    changes = {a.id: {"waits": why} for a in attempts if told.get(a.id, {}).get("waits") != why}
    if changes:
        store.note_told(changes)
        told |= changes


def foresee(store: Queue, place: Place, gpu: str, now: datetime) -> datetime | None:
    """When this place would start the next queued run for this GPU type, using the script that it would be sent with.
    None: no queued run fits, or it isn't known. Nothing is launched."""
    if not isinstance(place.backend, Foresees) or place.script is None or place.root is None:
        return None
    work = store.next_up(gpu, place.name, now)
    if work is None or not place.fits(work):
        return None
    try:
        script = place.script(work, place.root / work.attempt.name, time_limit_s(work.problem, work.mode))
    except (Misconfigured, Invalid) as error:
        tell("no foresight", run=work.attempt.run_id, backend=place.name, why=error.message)
        return None
    return place.backend.foresee(script)


def deadline_at(work: Work, place: Place, now: datetime) -> datetime:
    """When this attempt has used up its waiting time and its run time. The backend's own limit comes long before."""
    limit_s = time_limit_s(work.problem, work.mode)
    patience_s = place.patience_s if work.attempt.keeper is None else min(WARM_PATIENCE_S, place.patience_s)
    return now + timedelta(seconds=patience_s + limit_s + place.grace_s)


def _refused(store: Attempts, attempt: OpenAttempt, why: str, now: datetime, elsewhere: Sequence[str] = ()) -> Launched:
    crash_point("give_up.before_commit")
    state = store.give_up(attempt, Ending.REFUSED, why, now, elsewhere=elsewhere)
    crash_point("give_up.after_commit")
    tell("refused", run=attempt.run_id, attempt=attempt.number, backend=attempt.backend, why=why, run_state=state)
    return Launched.REFUSED


def _not_warm(store: Attempts, attempt: OpenAttempt, why: str, now: datetime) -> Launched:
    """It certainly wasn't started in its keeper. It isn't held against the run, which goes another way now."""
    crash_point("give_up.before_commit")
    state = store.give_up(attempt, Ending.WITHDRAWN, f"its warm worker didn't take it: {why}", now)
    crash_point("give_up.after_commit")
    tell("not warm", run=attempt.run_id, attempt=attempt.number, backend=attempt.backend, why=why, run_state=state)
    return Launched.NOT_WARM


def _unclear(
    store: Attempts,
    attempt: OpenAttempt,
    why: str,
    now: datetime,
    told: dict[AttemptId, Mapping[str, Any]] | None,
) -> Launched:
    store.note_ambiguous(attempt, why, now)
    if told is not None:
        told.pop(attempt.id, None)
    tell("unclear", level="warning", run=attempt.run_id, attempt=attempt.number, backend=attempt.backend, why=why)
    return Launched.AMBIGUOUS


def is_settled(outcome: Launched) -> bool:
    """Whether this process is done with the launch: the database says what comes next."""
    match outcome:
        case Launched.SUBMITTED | Launched.AMBIGUOUS | Launched.REFUSED | Launched.NOT_WARM:
            return True
        case Launched.LATER | Launched.AWAY | Launched.SHUT:
            return False
        case _:
            assert_never(outcome)
