"""A run as its submission's page shows it: not even the number of hidden cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbslurm.api import popcorn_submission, waiting
from kbslurm.api.case_rivals import NO_RIVALS, CaseRivals, compared
from kbslurm.api.comparison import change
from kbslurm.api.pages.charts.ranges import Range, Ranges, ranges
from kbslurm.api.pages.charts.strip import Strip, strip
from kbslurm.api.pages.charts.waterfall import waterfall
from kbslurm.api.pages.page_files import Table
from kbslurm.api.pages.people.outcomes import outcome
from kbslurm.api.pages.rendering import isolated, took
from kbslurm.domain import access, conditions, failed_tests, first_difference, log_parts, measure, physics, profiles
from kbslurm.domain.amounts import score
from kbslurm.domain.verdict import why_unranked
from kbslurm.domain.waterfall import waterfall as stages_of
from kbslurm.store.views import RunView, SubmissionView
from kbslurm_eval.shared import timing
from kbslurm_eval.shared.wire import PHASES, LaunchSamples

LOG_CHARACTERS = 8000
TIMINGS = (
    "gpu", "phase", "spec", "status", "median", "low", "high", "best", "worst", "mean", "null", "baseline", "message",
    "before_median", "before_low", "before_high", "leader_median", "leader_low", "leader_high",
)  # fmt: skip
TESTS, STAGES = ("gpu", "number", "spec", "status", "message"), ("gpu", "name", "took_s", "ended_at", "skewed")
DIFFERENCES = ("gpu", "number", "spec", "where", "got", "want", "wrong", "whole", "pattern")
KERNELS = ("gpu", "profile", "name", "share", "calls", "mean_s", "occupancy_pct")
_PHASES = {"test": "Tests", "benchmark": "Benchmarks", "ranked": "Ranked measurement", access.HIDDEN: "Hidden cases"}


def shown_run(
    run: RunView,
    view: SubmissionView,
    place: Mapping[str, Any] | None,
    samples: Sequence[LaunchSamples],
    rivals: CaseRivals,
) -> dict[str, Any]:
    """Everything of one run. `place`: what it came to among the others; `samples`: as its author may see them;
    `rivals`: what its cases took others."""
    verdict, detail = run.verdict, (run.verdict.detail if run.verdict else None) or {}
    tests = _tests(detail)
    shown = None
    if verdict is not None and verdict.score_s is not None:
        shown = score(verdict.score_s, verdict.low_s, verdict.high_s, ranked=verdict.ranked)
    stages = stages_of(run.stamps)
    return {
        "gpu": run.gpu,
        "verdict": verdict.name if verdict else run.shown_state,
        "outcome": outcome(run, view.mode, place),
        "steps": [] if run.ended_at is not None else _steps(run, view.mode),
        "first": None if verdict or run.first_score_s is None else took(run.first_score_s),
        "measurements": run.measurements,
        "ranked": verdict is not None and verdict.ranked,
        "not_ranked": why_unranked(verdict, view.mode),
        "score": shown,
        "light": physics.light_in_words(detail) if shown else "",
        "conditions": conditions.in_words(detail),
        "went": run.went,
        "waits": run.waits_for,
        "given_up": [*run.given_up, *run.remarks],
        "report": "" if verdict is None or verdict.name == "passed" else popcorn_submission.report_of(run),
        "waterfall": waterfall(stages) if stages else None,
        "stages": list(map(vars, stages)),
        "rivals": _rivals(run, place),
        "differences": [row for row in tests if row["difference"] is not None],
        "failed": [row for row in tests if row["status"] != "pass"],
        "passed": [row for row in tests if row["status"] == "pass"],
        "timed": timed(detail, samples, rivals),
        "has_best": bool(rivals.best),
        "has_leader": bool(rivals.leader),
        "log": [{"case": one, "text": one.text[-LOG_CHARACTERS:]} for one in log_parts.by_case(detail)],
        "profile": profiles.summary(detail),
        "digests": [
            {
                "title": profiles.title(row),
                "sentences": profiles.sentences(row),
                "hints": row["hints"],
                "kernels": profiles.kernels(row),
            }
            for row in profiles.digests(detail)
        ],
    }


def run_files(runs: Sequence[Mapping[str, Any]]) -> dict[str, Table]:
    """The tables of these runs, each of all of them together."""

    def rows(name: str) -> list[dict[str, Any]]:
        return [{"gpu": run["gpu"], **row} for run in runs for row in run[name]]

    kernels = [
        {"gpu": run["gpu"], "profile": one["title"], **kernel}
        for run in runs
        for one in run["digests"]
        for kernel in one["kernels"]
    ]
    tests = sorted([*rows("failed"), *rows("passed")], key=lambda row: (row["gpu"], row["number"]))
    differences = [{**row, **vars(row["difference"])} for row in rows("differences")]
    return {
        "timings": Table(columns=TIMINGS, rows=rows("timed")),
        "tests": Table(columns=TESTS, rows=tests),
        "differences": Table(columns=DIFFERENCES, rows=differences),
        "stages": Table(columns=STAGES, rows=rows("stages")),
        "kernels": Table(columns=KERNELS, rows=kernels),
    }


def _tests(detail: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = access.shown_cases(detail, "tests")
    return [
        {
            "number": int(row["index"]) + 1,
            "spec": row["spec"],
            "status": row["status"],
            "message": message,
            "difference": first_difference.of_message(message),
        }
        for row, message in zip(rows, failed_tests.once(rows), strict=True)
    ]


def timed(
    detail: Mapping[str, Any], samples: Sequence[LaunchSamples], rivals: CaseRivals = NO_RIVALS
) -> list[dict[str, Any]]:
    """The timed cases; those that count have their samples drawn, and are compared with others' times."""
    rows = access.shown_cases(detail, "benchmarks")
    counting = "ranked" if any(row["phase"] == "ranked" for row in rows) else "benchmark"
    return [
        {
            "phase": row["phase"],
            "spec": row["spec"],
            "status": row["status"],
            "message": message,
            **{
                name: _seconds(row.get(f"{name}_ns"))
                for name in ("mean", "median", "low", "high", "worst", "null", "baseline")
            },
            "best": _seconds(measure.shown_best_ns(row.get("best_ns"), row.get("null_ns"))),
            "strip": _strip(row, samples) if row["phase"] == counting else None,
            **(_beside(row, rivals) if row["phase"] == counting else {"before": None, "leader": None}),
        }
        for row, message in zip(rows, failed_tests.once(rows), strict=True)
    ]


def _beside(row: Mapping[str, Any], rivals: CaseRivals) -> dict[str, Any]:
    """What this case took one's best before, and the leader, with how much faster or slower this one is."""
    mine = (_seconds(row.get("median_ns")), _seconds(row.get("low_ns")), _seconds(row.get("high_ns")))
    told: dict[str, Any] = {}
    for name, theirs in (("before", rivals.best.get(row["spec"])), ("leader", rivals.leader.get(row["spec"]))):
        told[name] = None
        if theirs is not None and mine[0] is not None:
            pair = compared((mine[0], mine[1], mine[2]), theirs)
            told[name] = {"median": theirs[0], "low": theirs[1], "high": theirs[2],
                          "says": change(pair.ratio, pair.separated)}  # fmt: skip
            told |= {f"{name}_median": theirs[0], f"{name}_low": theirs[1], f"{name}_high": theirs[2]}
    return told


def _strip(row: Mapping[str, Any], samples: Sequence[LaunchSamples]) -> Strip | None:
    """The raw samples less the null call, as the figures beside them are."""
    found = timing.nets(samples, row["phase"], int(row["index"]))
    return strip(
        [[value / 1e9 for value in one.samples_ns] for one in found],
        written=took,
        median=_seconds(row.get("median_ns")),
        low=_seconds(row.get("low_ns")),
        high=_seconds(row.get("high_ns")),
        null=_seconds(row.get("null_ns")),
    )


def _rivals(run: RunView, place: Mapping[str, Any] | None) -> Ranges | None:
    """Its score beside one's best before it and the leader's, whom others see."""
    verdict = run.verdict
    if place is None or verdict is None or verdict.score_s is None:
        return None
    found = [_range("this one", verdict.score_s, verdict.low_s, verdict.high_s)]
    before, leader = place["before"], place["leader"]
    if before is not None:
        found.append(_range(f"your best before, #{before['submission_id']}", before["score"], *before["interval"]))
    if leader is not None:
        found.append(_range(f"the leader, {isolated(leader['shown_as'])}", leader["score"], *leader["interval"]))
    return ranges(found, written=took)


def _range(name: str, value: float, low: float | None, high: float | None) -> Range:
    low, high = low or value, high or value
    shown = score(value, low, high, ranked=True)
    return Range(name=name, value=value, low=low, high=high, score=shown, kind="" if name == "this one" else "other")


def _steps(run: RunView, mode: str) -> list[dict[str, Any]]:
    """The phases of its job while it runs: which are over, and how far the one that runs is."""
    told = waiting.progress(run)
    if told is None:
        return []
    names = [name for name in PHASES[mode] if name in _PHASES]
    now = names.index(told["phase"]) if told["phase"] in names else -1
    return [
        {
            "name": _PHASES[name],
            "state": "done" if n < now else "now" if n == now else "later",
            "done": told.get("done") if n == now else None,
            "of": told.get("of") if n == now else None,
        }
        for n, name in enumerate(names)
    ]


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e9
