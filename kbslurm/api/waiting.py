"""The queue's length: `runner_queue` of a GPU type, with position and expected start for a waiting submission."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from kbslurm.domain import access, eta
from kbslurm.domain.eta import Service
from kbslurm.domain.run import OPEN_RUNS, RunId, RunState
from kbslurm.ports import Clock, Receipt
from kbslurm.store.views import RunView, SubmissionView

if TYPE_CHECKING:
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.queue import QueueNow

RUNNER = "kbslurm"
FRESH_S = 20.0


class Rows(Protocol):
    """What is needed: the store, how many attempts may be open at once by GPU type, and the clock."""

    @property
    def store(self) -> PostgresStore: ...
    @property
    def slots(self) -> Mapping[str, int]: ...
    @property
    def clock(self) -> Clock: ...


class Histories:
    """How long recent runs took, by GPU type: read rarely, since many clients poll and it changes slowly."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Service | None]] = {}
        self._lock = threading.Lock()

    def of(self, context: Rows, gpu: str) -> Service | None:
        """What the database said about this type recently."""
        with self._lock:
            known = self._known.get(gpu)
        if known is not None and time.monotonic() - known[0] < FRESH_S:
            return known[1]
        found = context.store.queue.service(gpu)
        with self._lock:
            self._known[gpu] = (time.monotonic(), found)
        return found


def runner_queue(context: Rows, histories: Histories, gpu: str, run: RunView | None = None) -> dict[str, Any]:
    """RQ for this GPU type; for a waiting run also its position, when it will start (a range in seconds), and what its
    job is waiting for."""
    named = _known_type(context, gpu)
    if named is None and run is None:
        return {**_unknown(gpu), "error": "no place here has this GPU"}
    found, now = _queue(context, named or gpu, None if run is None else (run.id, run.fair_at))
    if run is not None and run.state == RunState.QUEUED:
        found |= _place(context, histories, named or gpu, now)
    if run is not None and run.state == RunState.LAUNCHING and (expected := _expected_at(run)) is not None:
        range_s = eta.planned_in_s((expected - context.clock.now()).total_seconds())
        found |= {"starts_in_s": [round(s, 1) for s in range_s]}
    if run is not None and run.state == RunState.LAUNCHING and run.waits_for:
        found |= {"waits_for": run.waits_for}
    return found


def of_receipt(context: Rows, histories: Histories, receipt: Receipt) -> dict[str, Any]:
    """RQ of the first run of a submission that has just been accepted."""
    gpu = _known_type(context, receipt.first_gpu) or receipt.first_gpu
    found, now = _queue(context, gpu, (receipt.run_ids[0], receipt.first_fair_at))
    return found | _place(context, histories, gpu, now)


def before_submitting(context: Rows, histories: Histories, gpu: str) -> dict[str, Any]:
    """RQ of this GPU type, and when a run would start that came now, behind all that are queued: `starts_in_s`, a range
    in seconds, and the same in `words`, which are empty where nothing is known."""
    named = _known_type(context, gpu)
    if named is None:
        return {**_unknown(gpu), "error": "no place here has this GPU", "starts_in_s": None, "words": ""}
    found, now = _queue(context, named, None)
    if now.held_up:
        return {**found, "starts_in_s": None, "words": now.held_up}
    slots = context.slots.get(named, 0)
    range_s = eta.starts_in_s(now.queued, now.open_now, slots, histories.of(context, named)) if now.led else None
    told = None if range_s is None else [round(s, 1) for s in range_s]
    return {**found, "starts_in_s": told, "words": _soon(told).removeprefix(", ")}


def _known_type(context: Rows, gpu: str) -> str | None:
    """This GPU type as the places here spell it, if one has it."""
    return {name.lower(): name for name in context.slots}.get(gpu.lower())


def _unknown(gpu: str) -> dict[str, Any]:
    return {
        "runner": RUNNER,
        "gpu": gpu,
        "queued_jobs": None,
        "running_jobs": None,
        "available_runners": None,
        "status": "unavailable",
        "error": None,
    }


def _queue(context: Rows, gpu: str, before: tuple[RunId, datetime] | None) -> tuple[dict[str, Any], QueueNow]:
    slots = context.slots.get(gpu, 0)
    now = context.store.queue.now(gpu, context.clock.now(), before=before)
    error = None if slots else "no place here has this GPU at the moment"
    if slots and not now.led:
        error = "the scheduler is down; queued runs will start when it is back"
    return {
        **_unknown(gpu),
        "queued_jobs": now.queued,
        "running_jobs": now.open_now,
        "available_runners": max(0, slots - now.open_now),
        "status": "unavailable" if error else "available",
        "error": error,
    }, now


def _place(context: Rows, histories: Histories, gpu: str, now: QueueNow) -> dict[str, Any]:
    if now.held_up:
        return {"place": now.ahead + 1, "starts_in_s": None, "waits_for": now.held_up}
    range_s = eta.starts_in_s(now.ahead, now.open_now, context.slots.get(gpu, 0), histories.of(context, gpu))
    return {"place": now.ahead + 1, "starts_in_s": None if range_s is None else [round(s, 1) for s in range_s]}


def _heard(run: RunView, key: str) -> Any:
    """What the daemon last learned about the run's open attempt."""
    return run.attempts[-1].telemetry.get(key) if run.attempts else None


def _expected_at(run: RunView) -> datetime | None:
    """When the cluster plans to start its job, if it has said so."""
    said = _heard(run, "expected_at")
    return datetime.fromisoformat(said) if isinstance(said, str) else None


def progress(run: RunView) -> dict[str, Any] | None:
    """Its job's progress, while it is running."""
    return access.shown_progress(_heard(run, "progress")) if run.state == RunState.RUNNING else None


def of_submission(context: Rows, histories: Histories, view: SubmissionView) -> dict[str, Any] | None:
    """RQ of the first run that is still open, from the first poll on; None if all have ended."""
    for run in view.runs:
        if run.state in OPEN_RUNS:
            return runner_queue(context, histories, run.gpu, run)
    return None


def words(view: SubmissionView, queue: dict[str, Any] | None) -> str:
    """One line of real progress."""
    done = sum(run.ended_at is not None for run in view.runs)
    of = f" ({done} of {len(view.runs)} done)" if len(view.runs) > 1 else ""
    open_runs = [run for run in view.runs if run.ended_at is None]
    if not open_runs or queue is None:
        return f"all runs have ended{of}"
    run = open_runs[0]
    went = f" {run.went}" if run.went else ""
    if run.state == RunState.RUNNING:
        node = run.attempts[-1].node if run.attempts else None
        told = (f"node {node}" if node else "", run.warm, access.progress_text(progress(run)))
        return ", ".join((f"running on {run.gpu}{went}", *(one for one in told if one))) + of
    if run.state == RunState.LAUNCHING:
        why = run.waits_for
        return f"starting on {run.gpu}{went}{f', {why}' if why else ''}{_soon(queue.get('starts_in_s'))}{of}"
    place, held_up = queue.get("place"), queue.get("waits_for")
    why = f"; {held_up}" if held_up else ""
    return f"waiting for {run.gpu}, place {place}{_soon(queue.get('starts_in_s'))}{of}{why}"


def _soon(range_s: list[float] | None) -> str:
    if range_s is None:
        return ""
    low, high = (max(0, round(s / 60)) for s in range_s)
    if high <= 1:
        return ", starts within a minute"
    return f", starts in about {low} to {high} min" if low else f", starts within {high} min"
