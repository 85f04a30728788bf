"""What one run came to, as the report that is sealed."""

from __future__ import annotations

import hashlib
import statistics
import time
from dataclasses import replace

from kbslurm_eval.judge import machine, run_log
from kbslurm_eval.judge.run_state import RunState
from kbslurm_eval.shared import timing
from kbslurm_eval.shared.program import harness_digest
from kbslurm_eval.shared.wire import (
    REPORT_CAP,
    WIRE_VERSION,
    Isolation,
    PhaseName,
    Report,
    VerdictName,
    commitment,
    dumps,
)

PUT_OFF, PUT_OFF_TIMES = "PUT_OFF", 2.0
HELD_UP, HELD_UP_TIMES, HELD_UP_NS, HELD_UP_TOLD = "HELD_UP", 2.0, 300e3, 1.5
NOT_ON_A_PROCESSOR = "no caches are flushed where no device is used: each call's input is written by another process"


def report_of(run: RunState, verdict: VerdictName, reason: str, started: int) -> Report:
    """The report of a run that has ended so."""
    manifest, results = run.manifest, run.results
    score = _score(run) if verdict == "passed" else None
    _see_what_is_put_off(run)
    _see_what_holds_the_baseline_up(run)
    if run.device is not None:
        results.flags += run.device.flags()
        results.facts.update(run.device.told())
        if found := run.device.evidence():
            results.facts.setdefault("evidence", {}).update(found)
    if run.rank_devices is not None:
        results.flags += run.rank_devices.clocks.flags()
        results.facts.update(run.rank_devices.told())
        if found := run.rank_devices.clocks.evidence():
            results.facts.setdefault("evidence", {}).update(found)
    if manifest.mode != "test":
        results.facts.setdefault("caches", {"flushed_bytes": 0, "why": NOT_ON_A_PROCESSOR})
    launched = results.launches > 0
    report = Report(
        version=WIRE_VERSION,
        token=manifest.token,
        attempt=manifest.attempt,
        nonce=manifest.nonce,
        mode=manifest.mode,
        problem_digest=manifest.problem_digest,
        harness_digest=harness_digest(),
        verdict=verdict,
        reason=reason,
        score_s=None if score is None else score.value / 1e9,
        interval_s=None if score is None else [min(score.low, score.value) / 1e9, max(score.high, score.value) / 1e9],
        tests=results.tests,
        benchmarks=results.benchmarks,
        phases=results.phases,
        isolation=Isolation(
            level=results.level if launched else 0,
            means=run.runners.means if launched else "none",
            notes=results.notes,
        ),
        started_at_ns=started,
        ended_at_ns=max(started, time.time_ns()),
        log=results.log.text,
        log_parts=results.log.parts,
        secret_log=results.secret_log,
        host={
            **machine.facts(),
            **run.runners.image,
            **results.facts,
            **run.builds.facts(),
            "launches": results.launches,
            "spread": _spread(run),
            "calls_checked": results.checked,
        },
        flags=_flags(run),
        profile=results.profile.text() if results.profile else "",
        artifacts=results.profile.artifacts if results.profile else [],
        digests=results.profile.digests if results.profile else [],
        samples=results.samples,
        paired=any(b.baseline_ns is not None for b in results.benchmarks),
        submission_sha256=hashlib.sha256(manifest.source.encode()).hexdigest(),
        seed_commitment=commitment(manifest.secret_seed),
        budget=results.budget,
    )
    run.heartbeat.enter("done", 0)
    return _fitting(report)


def _nets_of_score(run: RunState) -> list[list[timing.Net]]:
    wanted: PhaseName = "ranked" if run.manifest.mode == "leaderboard" else "benchmark"
    return [timing.nets(run.results.samples, wanted, b.index) for b in run.results.benchmarks if b.phase == wanted]


def _score(run: RunState) -> timing.Estimate | None:
    found = _nets_of_score(run)
    return timing.combined(found, run.manifest.ranking_by, run.manifest.budget.launches) if found else None


def _see_what_is_put_off(run: RunState) -> None:
    """Tell the author that the score is more than what is typical of a call, and staff where it is much more."""
    found = _nets_of_score(run)
    counts = timing.in_the_tail(found, run.manifest.ranking_by)
    if counts > 1.0:
        run.results.log.remark(
            "benchmark",
            f"[the score is {counts:.2f} times the typical call: in most launches a few took so long that the mean"
            f" of all calls is {counts * timing.TAIL_TIMES:.2f} times as much, and the baseline's aren't like that]",
        )
    if (times := counts * timing.TAIL_TIMES) >= PUT_OFF_TIMES:
        run.results.flags.append(PUT_OFF)
        run.results.facts.setdefault("evidence", {})[PUT_OFF] = (
            f"in most launches the mean of all calls is {times:.1f} times what is typical of them, where the baseline's"
            " is as typical: some inputs may take it far longer than most, or work for many calls is done in a few, or"
            " in those that don't count"
        )


def _see_what_holds_the_baseline_up(run: RunState) -> None:
    """Tell the author where the interval reaches much further for it, and staff where it is in all launches but one."""
    cases = _nets_of_score(run)
    found = sorted(timing.slower_beside(cases, run.manifest.ranking_by))
    if len(found) < 3:
        return
    times = statistics.geometric_mean(found)
    if times >= HELD_UP_TOLD:
        run.results.log.remark(
            "benchmark",
            f"[the baseline took {times:.2f} times as long beside this submission as before it was there: the interval"
            " in units of it reaches up to what it would be in units of the time before]",
        )
    if found[1 if len(found) > 3 else 0] < HELD_UP_TIMES:
        return
    if max(statistics.median_low(map(_longer_ns, nets)) for nets in cases) > HELD_UP_NS:
        run.results.flags.append(HELD_UP)
        run.results.facts.setdefault("evidence", {})[HELD_UP] = (
            f"in most launches the baseline's calls took {times:.1f} times as long beside this submission as before it"
            " was there: does it leave work behind that slows others?"
        )


def _longer_ns(net: timing.Net) -> float:
    return (net.baseline_ns or 0.0) - (net.baseline_alone_ns or net.baseline_ns or 0.0)


def _spread(run: RunState) -> dict[str, list[dict[str, float] | None]]:
    """By timed phase, for each benchmark: the spread between launches and between the calls of one."""
    told: dict[str, list[dict[str, float] | None]] = {}
    for result in run.results.benchmarks:
        if result.status == "pass":
            seen = timing.nets(run.results.samples, result.phase, result.index)
            told.setdefault(result.phase, []).append(timing.components(seen))
    return told


def _flags(run: RunState) -> list[str]:
    found = {flag for b in run.results.benchmarks for flag in b.flags if flag.isupper()}
    return [*run.results.flags, *sorted(found)]


def _fitting(report: Report) -> Report:
    """The report below the cap: a thousand failed tests cost their messages, then the logs, never the report."""
    if len(dumps(report)) < REPORT_CAP // 2:
        return report
    short = replace(report, tests=[replace(t, message=t.message[:60], spec=t.spec[:60]) for t in report.tests])
    if len(dumps(short)) < REPORT_CAP // 2:
        return short
    parts = run_log.cut(short.log_parts, 1000)
    return replace(short, log=short.log[:1000], log_parts=parts, secret_log=short.secret_log[:1000])
