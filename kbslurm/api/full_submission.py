"""All of a submission, as `kbslurm watch` shows it to its owner: with attempts, where the time went, and the report.

`as_json` writes it and `from_json` reads it back on the client, so that the command line shows the same from the
database and over HTTP. Pure; contains nothing that only hosts may see.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kbslurm.api import waiting
from kbslurm.domain import access
from kbslurm.domain.run import PersonId, RunId, RunState, SubmissionId
from kbslurm.domain.verdict import Verdict, why_unranked
from kbslurm.store.views import AttemptView, RunView, SubmissionView

STAMPS = ("harness_started_at_ns", "harness_ended_at_ns")
MOMENTS = ("opened_at", "submitted_at", "started_at", "ended_at")


def as_json(view: SubmissionView) -> dict[str, Any]:
    """The submission as JSON."""
    kept_back = access.why_kept_back(view.accepted_at, view.frozen_at, names=view.names, standings=view.standings)
    return {
        "id": view.id,
        "person_id": str(view.person_id),
        "person": view.person,
        "team": view.team,
        "board_id": view.board_id,
        "board": view.board,
        "mode": view.mode,
        "file_name": view.file_name,
        "source": view.source or "",
        "sha256": view.sha256,
        "accepted_at": view.accepted_at.isoformat(),
        "late_s": view.late_s,
        "practice": view.practice,
        "frozen": kept_back is not None,
        "kept_back": kept_back,
        "done": view.is_done,
        "runs": [_run(run, view.mode) for run in view.runs],
    }


def _run(run: RunView, mode: str) -> dict[str, Any]:
    found = run.verdict
    return {
        "id": run.id,
        "gpu": run.gpu,
        "state": run.state.value,
        "standing": run.shown_state,
        "second": run.second,
        "held": run.held,
        "first_score_s": run.first_score_s,
        "broke_off": run.broke_off,
        "measurements": run.measurements,
        "queued_at": run.queued_at.isoformat(),
        "ended_at": _text(run.ended_at),
        "reason": run.reason,
        "waits_for": run.waits_for,
        "progress": waiting.progress(run),
        "verdict": None if found is None else {**_verdict(found), "not_ranked": why_unranked(found, mode)},
        "verdict_at": _text(run.verdict_at),
        "attempts": [_attempt(one) for one in run.attempts],
    }


def _verdict(found: Verdict) -> dict[str, Any]:
    told = {one.name: getattr(found, one.name) for one in dataclasses.fields(found) if one.name != "detail"}
    return {**told, "report": access.shown_report(found.detail)}


def _attempt(one: AttemptView) -> dict[str, Any]:
    return {
        "number": one.number,
        "backend": one.backend,
        "state": one.state,
        "job": one.handle,
        "node": one.node,
        "ending": one.ending,
        "why": one.why_here,
        "warm": one.warm,
        **{name: _text(getattr(one, name)) for name in MOMENTS},
        "submitted_at": _text(one.known_at),
        **{name: one.telemetry.get(name) for name in STAMPS},
    }


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def from_json(row: Mapping[str, Any]) -> SubmissionView:
    """The value that `as_json` wrote; what it left out is empty. KeyError, TypeError, ValueError: it isn't valid."""
    return SubmissionView(
        id=SubmissionId(row["id"]),
        person_id=PersonId(int(row["person_id"])),
        person=row["person"],
        board_id=row["board_id"],
        board=row["board"],
        mode=row["mode"],
        file_name=row["file_name"],
        source=row["source"] or None,
        sha256=row["sha256"],
        via="",
        by_staff=False,
        accepted_at=datetime.fromisoformat(row["accepted_at"]),
        removed_at=None,
        late_s=row.get("late_s", 0.0),
        practice=row.get("practice", False),
        runs=tuple(_run_from_json(one) for one in row["runs"]),
    )


def _run_from_json(row: Mapping[str, Any]) -> RunView:
    queued_at, told = datetime.fromisoformat(row["queued_at"]), row["verdict"]
    attempts = [_attempt_from_json(one) for one in row["attempts"]]
    if attempts:
        last, waits = attempts[-1], row.get("waits_for", "")
        heard = {"progress": row["progress"], "waits": waits}
        attempts[-1] = dataclasses.replace(last, telemetry={**last.telemetry, **heard})
    verdict = None
    if told is not None:
        fields = {one.name: told[one.name] for one in dataclasses.fields(Verdict) if one.name != "detail"}
        verdict = Verdict(**fields, detail=told["report"])
    return RunView(
        id=RunId(row["id"]),
        gpu=row["gpu"],
        state=RunState(row["state"]),
        problem_version_id=0,
        attempt_count=len(attempts),
        queued_at=queued_at,
        fair_at=queued_at,
        cancel_at=None,
        ended_at=_moment(row["ended_at"]),
        reason=row["reason"],
        verdict=verdict,
        verdict_at=_moment(row["verdict_at"]),
        attempts=tuple(attempts),
        second=row["second"],
        held=row["held"],
        first_score_s=row["first_score_s"],
        broke_off=row.get("broke_off", False),
        measurements=row.get("measurements", 1),
    )


def _attempt_from_json(row: Mapping[str, Any]) -> AttemptView:
    opened_at = datetime.fromisoformat(row["opened_at"])
    return AttemptView(
        number=row["number"],
        name="",
        backend=row["backend"],
        state=row["state"],
        handle=row["job"],
        node=row["node"],
        ending=row["ending"],
        exit_code=None,
        reason="",
        opened_at=opened_at,
        submitted_at=_moment(row["submitted_at"]),
        started_at=_moment(row["started_at"]),
        ended_at=_moment(row["ended_at"]),
        deadline_at=None,
        why_here=row.get("why", ""),
        warm=row.get("warm", False),
        telemetry={name: row[name] for name in STAMPS if row[name] is not None},
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
