"""A submission in popcorn's words: one RUN per phase of a report, flat result keys, one short report. Pure.

Contains nothing that only hosts may see: of the hidden phase, only whether it passed.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from kbslurm.domain import access, failed_tests, profiles
from kbslurm.domain.measure import shown_best_ns
from kbslurm.domain.run import RunState
from kbslurm.domain.verdict import POPCORN, why_unranked
from kbslurm.domain.waterfall import moment
from kbslurm.store.views import RunView, SubmissionView

TOLD_FAILURES = 3
FIRST_PROFILE = "profile.0"
TOLD_LINES = 12
TOLD_CHARACTERS = 2000
# The phases of a report as popcorn calls them.
PHASES = {"test": "test", "benchmark": "benchmark", "ranked": "leaderboard", access.HIDDEN: "leaderboard"}
# When the runs of one submission ended differently, the worst one gives the submission's status.
WORST = ("hacked", "timed_out", "failed", "succeeded")
STATUS = {"pass": "pass", "fail": "fail", "error": "fail", "timeout": "fail", "skipped": "skipped"}


def submission(view: SubmissionView, queue: Mapping[str, Any] | None) -> dict[str, Any]:
    """What `GET /user/submissions/{id}` answers."""
    return {
        "id": view.id,
        "leaderboard_id": view.board_id,
        "leaderboard_name": view.board,
        "file_name": view.file_name,
        "user_id": str(view.person_id),
        "submission_time": view.accepted_at.isoformat(),
        "mode": view.mode,
        "done": view.is_done,
        "code": view.source or "",
        "runs": [one for run in view.runs for one in runs(view, run)],
        "job": job(view),
        "runner_queue": queue,
    }


def summary(view: SubmissionView) -> dict[str, Any]:
    """A submission in a list."""
    return {
        "id": view.id,
        "leaderboard_name": view.board,
        "file_name": view.file_name,
        "submission_time": view.accepted_at.isoformat(),
        "mode": view.mode,
        "done": view.is_done,
        "status": job_status(view),
        "runs": [
            {
                "gpu_type": run.gpu,
                "score": run.verdict.score_s if run.verdict and run.verdict.ranked else None,
                "standing": run.verdict.name if run.verdict else run.shown_state,
                "interval": _interval(run),
                "not_ranked": why_unranked(run.verdict, view.mode),
            }
            for run in view.runs
        ],
    }


def _interval(run: RunView) -> list[float] | None:
    found = run.verdict
    ranked = found is not None and found.ranked
    return [found.low_s, found.high_s] if ranked and found and found.low_s is not None and found.high_s else None


def job(view: SubmissionView) -> dict[str, Any]:
    """The overall status; `error` is the only text that the client shows on failure."""
    status = job_status(view)
    return {
        "status": status,
        "error": None if status in ("pending", "running", "succeeded") else report(view),
        "last_heartbeat": _iso(_last_sign(view)),
    }


def job_status(view: SubmissionView) -> str:
    """One of pending, running, succeeded, failed, timed_out, hacked."""
    if not view.is_done:
        return "running" if any(run.state == RunState.RUNNING for run in view.runs) else "pending"
    found = {POPCORN[run.verdict.name] if run.verdict else "failed" for run in view.runs}
    return next(status for status in WORST if status in found or status == "succeeded")


def runs(view: SubmissionView, run: RunView) -> list[dict[str, Any]]:
    """The phases of a run, each as a RUN; a run that ended without a report counts as one of its submission's mode."""
    if run.verdict is None:
        return []
    detail = run.verdict.detail or {}
    phases = detail.get("phases") or ()
    if not phases:
        passed = run.verdict.name == "passed"
        return [_as_run(run, view.mode, secret=False, passed=passed, start=run.queued_at, end=run.ended_at)]
    found = []
    for phase in phases:
        mode, secret = PHASES[phase["name"]], access.is_hidden(phase["name"])
        ranked = phase["name"] == "ranked"
        found.append(
            _as_run(
                run,
                mode,
                secret=secret,
                passed=bool(phase["passed"]),
                start=None if secret else moment(phase["started_at_ns"]),
                end=None if secret else moment(phase["ended_at_ns"]),
                score_s=run.verdict.score_s if ranked and run.verdict.ranked else None,
                not_ranked=why_unranked(run.verdict, view.mode) if ranked else None,
                result=result(detail, phase["name"]) if mode in ("test", "benchmark") else {},
            )
        )
    return found


def result(detail: Mapping[str, Any], phase: str) -> dict[str, str]:
    """The flat keys of a public test or benchmark phase; every value is a string, times are in nanoseconds."""
    tests = [row for row in detail.get("tests", ()) if row["phase"] == phase]
    timed = [row for row in detail.get("benchmarks", ()) if row["phase"] == phase]
    found: dict[str, str] = {}
    if tests:
        found["test-count"] = str(len(tests))
    for n, row in enumerate(tests):
        found[f"test.{n}.spec"] = row["spec"]
        found[f"test.{n}.status"] = STATUS.get(row["status"], "fail")
        if row.get("message"):
            found[f"test.{n}.{'message' if row['status'] == 'pass' else 'error'}"] = row["message"]
    if timed:
        found["benchmark-count"] = str(len(timed))
    for n, row in enumerate(timed):
        found |= _benchmark(f"benchmark.{n}", row)
    if found:
        clean = all(row["status"] == "pass" for row in (*tests, *timed))
        found["check"] = "pass" if clean else "fail"
    return found


def full(view: SubmissionView, run: RunView, profile: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One run as a stream's last event carries it. Under `runs`, a profile's phases are named profile.N, and the first
    one carries the profiler's files."""
    found = runs(view, run)
    verdict = run.verdict
    return {
        "success": verdict is not None and verdict.name == "passed",
        "error": "" if verdict is not None and verdict.name == "passed" else report_of(run),
        "system": {"gpu": run.gpu, "cpu": "", "runtime": "", "platform": ""},
        "runs": {
            key: _full_run(view, run, one, profile if key == FIRST_PROFILE else None)
            for key, one in ((_key(view, n, one), one) for n, one in enumerate(found) if not one["secret"])
        },
    }


def markdown(view: SubmissionView, run: RunView) -> str:
    """A run's report for people, as Markdown."""
    verdict = run.verdict
    name = verdict.name if verdict else run.state.value
    lines = [f"## {view.board} on {run.gpu}: {name}", ""]
    if verdict and verdict.score_s is not None:
        why = why_unranked(verdict, view.mode)
        lines += [f"{'Score' if verdict.ranked else 'Time'}: {verdict.score_s:.9g} s", ""]
        lines += [f"Not ranked: {why}", ""] if why else []
    for phase in (verdict.detail or {}).get("phases", ()) if verdict else ():
        lines.append(f"* {phase['name']}: {'passed' if phase['passed'] else 'not passed'}")
    if name != "passed":
        lines += ["", *fenced(report_of(run))]
    if drawn := str(((verdict.detail if verdict else None) or {}).get("profile", "")):
        lines += ["", "Profile, produced by the submission's own process:", "", *fenced(drawn)]
    return "\n".join(lines).rstrip() + "\n"


def fenced(text: str) -> list[str]:
    """The text as a code block that its contents can't close: the fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, text, fence]


def report(view: SubmissionView) -> str:
    """A short failure report: each run that didn't pass, with its reason and first failures."""
    bad = [run for run in view.runs if run.verdict is None or run.verdict.name != "passed"]
    texts = [f"{run.gpu}: {report_of(run)}" if len(view.runs) > 1 else report_of(run) for run in bad]
    return "\n".join(texts)[:TOLD_CHARACTERS]


def report_of(run: RunView) -> str:
    """Why one run didn't pass."""
    if run.verdict is None:
        return "it was cancelled" if run.state == RunState.CANCELLED else run.reason or "it hasn't finished yet"
    lines = [f"{run.verdict.name}: {run.verdict.reason}" if run.verdict.reason else run.verdict.name]
    detail = run.verdict.detail or {}
    lines += failed_tests.in_words(access.shown_cases(detail, "tests"), TOLD_FAILURES)
    if run.verdict.name == "error" and len(lines) == 1:
        lines += [text for text in str(detail.get("log", "")).splitlines() if text.strip()][:TOLD_LINES]
    return "\n".join(lines)[:TOLD_CHARACTERS]


def _as_run(
    run: RunView,
    mode: str,
    *,
    secret: bool,
    passed: bool,
    start: datetime | None,
    end: datetime | None,
    score_s: float | None = None,
    not_ranked: str | None = None,
    result: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    return {
        "start_time": _iso(start),
        "end_time": _iso(end),
        "mode": mode,
        "secret": secret,
        "runner": run.gpu,
        "score": None if score_s is None or secret else decimal(score_s),
        "not_ranked": not_ranked,
        "passed": passed,
        "result": dict(result or {}),
    }


def _full_run(
    view: SubmissionView, run: RunView, one: Mapping[str, Any], profile: Mapping[str, Any] | None
) -> dict[str, Any]:
    detail = (run.verdict.detail if run.verdict else None) or {}
    told: dict[str, Any] = dict(one["result"])
    if view.mode == "profile":
        told["benchmark-count"] = int(told.get("benchmark-count", 0))
        told |= _reports(detail)
    return {
        "start": one["start_time"],
        "end": one["end_time"],
        "compilation": None,
        "run": {
            "success": one["passed"],
            "passed": one["passed"],
            "command": "",
            "stdout": _stdout(detail, profile),
            "stderr": "",
            "exit_code": 0 if one["passed"] else 1,
            "duration": 0.0,
            "result": told,
        },
        "profile": None if profile is None else dict(profile),
    }


def _reports(detail: Mapping[str, Any]) -> dict[str, str]:
    """What the client shows of each profiled benchmark, in base64."""
    found: dict[int, list[str]] = {}
    for row in profiles.digests(detail):
        found.setdefault(row["benchmark"], []).extend(
            [profiles.title(row), *profiles.sentences(row), *row["hints"], ""]
        )
    return {
        f"benchmark.{index}.report": base64.b64encode("\n".join(lines).encode()).decode("ascii")
        for index, lines in found.items()
    }


def _stdout(detail: Mapping[str, Any], profile: Mapping[str, Any] | None) -> str:
    log = str(detail.get("log", ""))
    return log if profile is None else f"{profiles.summary(detail)}\n\n{log}".strip()


def _key(view: SubmissionView, number: int, one: Mapping[str, Any]) -> str:
    return f"profile.{number - 1}" if view.mode == "profile" and one["mode"] == "benchmark" else str(one["mode"])


def _benchmark(key: str, row: Mapping[str, Any]) -> dict[str, str]:
    found = {f"{key}.spec": row["spec"], f"{key}.status": STATUS.get(row["status"], "fail")}
    if row["status"] != "pass" and row.get("message"):
        found[f"{key}.error"] = row["message"]
    if row["status"] == "pass":
        spread = row.get("std_ns")
        amounts = {
            "runs": row.get("calls"),
            "mean": row.get("mean_ns") if row.get("mean_ns") is not None else row.get("median_ns"),
            "std": spread,
            "err": _standard_error(spread, row.get("calls")),
            "best": shown_best_ns(row.get("best_ns"), row.get("null_ns")),
            "worst": row.get("worst_ns"),
        }
        found |= {f"{key}.{name}": _number(value) for name, value in amounts.items() if value is not None}
    return found


def _standard_error(spread_ns: float | None, calls: int | None) -> float | None:
    return None if spread_ns is None or not calls else float(spread_ns / calls**0.5)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else decimal(value)


def decimal(value: float) -> str:
    """A number as a decimal string, never in scientific notation."""
    text = f"{value:.12f}".rstrip("0").rstrip(".")
    return text or "0"


def _last_sign(view: SubmissionView) -> datetime | None:
    signs: Sequence[datetime | None] = [
        at for run in view.runs for a in run.attempts for at in (a.ended_at, a.started_at, a.submitted_at, a.opened_at)
    ]
    return max((at for at in signs if at is not None), default=None)


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
