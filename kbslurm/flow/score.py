"""Step 7, score: a sealed report becomes the run's single verdict, in one fenced statement. Next step: `announce`."""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from kbslurm.domain import broken_off, finals, measure
from kbslurm.domain.drift import SHADOW
from kbslurm.domain.manifest import time_limit_s
from kbslurm.domain.physics import Peak, held_to
from kbslurm.domain.run import CHECK_DIED, OWN_FAULT, Ending, OpenAttempt, RunId, Sighting, Work
from kbslurm.domain.verdict import Verdict, of_report
from kbslurm.flow import recount
from kbslurm.observe.crash_points import crash_point
from kbslurm.observe.logs import teller
from kbslurm.ports import Attempts, Results
from kbslurm_eval.shared.wire import Report, WireError, unseal

tell = teller("score")

OF_THE_SERVICE = (measure.CALIBRATION, finals.FINAL, SHADOW)
OTHER_CLASS = "timed on a different class of GPU than the board's, so it doesn't rank"


class Scored(StrEnum):
    """The outcome of a report or an ending."""

    VERDICT = "verdict"
    STALE = "stale"
    RETRY_OR_FAILED = "retry_or_failed"


def score(
    store: Results,
    attempt: OpenAttempt,
    sealed: bytes,
    now: datetime,
    *,
    least_isolation: int = 0,
    brought: Callable[[Sequence[str]], Mapping[str, bytes]] | None = None,
    peak: Peak | None = None,
    starved: Callable[[], str | None] = lambda: None,
) -> Scored:
    """Judge the report. One that isn't this attempt's is an infrastructure failure, never a score.

    `least_isolation`: the place's minimum for a run to rank; the board may require more. `brought` returns a profile's
    files by name. `peak`: what one of the place's GPUs can do. `starved`: why memory that ran out isn't the
    submission's fault, if that is so.
    """
    work = store.attempts.work(attempt.id)
    try:
        report = opened(sealed, work)
        recount.check(report, work.problem, source=work.source, secret_seed=work.secret_seed)
    except WireError as error:
        return give_up(store.attempts, attempt, Ending.BAD_REPORT, f"the report can't be trusted: {error}", now)
    if report.verdict == "infrastructure":
        return give_up(store.attempts, attempt, Ending.NODE_FAILURE, report.reason, now)
    if report.verdict == "memory" and (why := starved()) is not None:
        return give_up(store.attempts, attempt, Ending.MISCONFIGURED, why, now)
    least = max(work.ranked_min_isolation, least_isolation)
    raw, digest = recount.archived(report)
    detail = {**dataclasses.asdict(dataclasses.replace(report, samples=[])), "samples_sha256": digest}
    by, gpu = work.problem.ranking_by, attempt.gpu
    verdict = of_report(report, detail, min_isolation=least, ranking_by=by, gpu=gpu)
    verdict = held_to(verdict, report, work.problem, peak)
    ranks = _measured(store, attempt, report, verdict, work, now)
    if ranks.trouble is not None:
        return give_up(store.attempts, attempt, Ending.UNSTEADY, ranks.trouble, now)
    verdict = ranks.verdict
    files = artifacts(report, brought) if report.artifacts and brought is not None else None
    crash_point("score.before_commit")
    won = store.scores.record(
        attempt,
        verdict,
        Ending.REPORTED,
        now,
        telemetry=telemetry(report),
        samples=raw,
        second_seed=secrets.token_hex(16) if ranks.again else None,
        b_ref_s=ranks.b_ref_s,
        artifacts=files,
        broke_off=work.via not in OF_THE_SERVICE and broken_off.broke_off(report),
        instead=ranks.instead,
    )
    crash_point("score.after_commit")
    if not won:
        return keep_stale(store.attempts, attempt, sealed, "the run had ended before this report arrived", now)
    tell("scored", run=attempt.run_id, attempt=attempt.number, verdict=verdict.name, score_s=verdict.score_s)
    return Scored.VERDICT


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """A verdict as it counts on its board, and what follows: another measurement, that an earlier one counts instead,
    reference times, or a failure."""

    verdict: Verdict
    again: bool = False
    instead: RunId | None = None
    b_ref_s: tuple[float, ...] | None = None
    trouble: str | None = None


def _measured(
    store: Results, attempt: OpenAttempt, report: Report, verdict: Verdict, work: Work, now: datetime
) -> Ranks:
    """How a passed leaderboard run ranks: measured on a normal node, in the board's units, and a second time if it
    would improve its author's rank."""
    if report.mode != "leaderboard" or not (work.via == finals.FINAL or (verdict.name == "passed" and verdict.score_s)):
        return Ranks(verdict=verdict)
    problem = work.problem
    node = attempt.node or str(report.host.get("node") or "")
    yard = store.scores.yardstick(attempt, node, report.harness_digest)
    shadows = work.via == SHADOW
    if not attempt.ranks and not yard.calibrates and not shadows:
        return Ranks(verdict=dataclasses.replace(verdict, ranked=False, reason=verdict.reason or OTHER_CLASS))
    # a final's figures are ratios within one job, in which the baseline always follows somebody else
    level = None if work.via == finals.FINAL else measure.baseline_level(report)
    if level is not None:
        off = measure.drift(yard.chart, level)
        if node:
            store.scores.note_baseline(attempt.id, node, level, now, harness=report.harness_digest, inside=off is None)
        if off is not None:
            return Ranks(verdict=verdict, trouble=off)
    if yard.calibrates:
        unranked = dataclasses.replace(verdict, ranked=False)
        if problem.baseline is None or not attempt.ranks:
            return Ranks(verdict=unranked)
        return Ranks(verdict=unranked, b_ref_s=measure.reference_times(report))
    if work.via == finals.FINAL:
        told = finals.as_detail(report, problem, yard.b_ref_s)
        if verdict.name != "passed" and not any(one["score_s"] for one in told["rivals"]):
            return Ranks(verdict=verdict)
        detail = {**(verdict.detail or {}), "final": told}
        return Ranks(verdict=dataclasses.replace(verdict, ranked=False, detail=detail))
    if problem.baseline is not None:
        verdict = measure.in_reference_units(verdict, report, problem, yard.b_ref_s)
    if shadows:
        return Ranks(verdict=dataclasses.replace(verdict, ranked=False))
    if (known := store.scores.again(attempt)) is not None:
        found = broken_off.counted_after(verdict, yard, known)
        return Ranks(verdict=found.verdict, again=found.again, instead=found.instead)
    disturbed = measure.was_disturbed(report, problem.ranking_by)
    verdict, again = measure.settled(verdict, yard, disturbed=disturbed)
    return Ranks(verdict=verdict, again=again)


def artifacts(report: Report, brought: Callable[[Sequence[str]], Mapping[str, bytes]]) -> Mapping[str, bytes]:
    """The files that the judge sealed, if they are unchanged. A profile isn't worth failing a verdict: missing or
    modified files are left out."""
    found = brought([one.name for one in report.artifacts])
    sealed = {one.name: one.sha256 for one in report.artifacts}
    return {name: data for name, data in found.items() if hashlib.sha256(data).hexdigest() == sealed.get(name)}


def score_own_fault(store: Results, attempt: OpenAttempt, sighting: Sighting, ending: Ending, now: datetime) -> Scored:
    """The verdict of a submission that was killed at its own time or memory limit before it could report, or whose
    answer ended the judge."""
    verdict = Verdict(name=OWN_FAULT[ending], reason=own_fault_reason(store.attempts.work(attempt.id), ending))
    crash_point("score.before_commit")
    said = {"end": _end(sighting)}
    won = store.scores.record(attempt, verdict, ending, now, telemetry=said, broke_off=None)
    crash_point("score.after_commit")
    tell("scored", run=attempt.run_id, attempt=attempt.number, verdict=verdict.name, fenced_out=not won)
    return Scored.VERDICT if won else Scored.STALE


def own_fault_reason(work: Work, ending: Ending) -> str:
    """Which limit it hit, or what it did."""
    if ending is Ending.CHECK_DIED:
        return CHECK_DIED
    if ending is Ending.MEMORY:
        mib = work.problem.limits.memory_bytes / (1 << 20)
        return f"its job was killed for exceeding its memory limit; a submission may use {mib:g} MiB"
    return f"it hit the job's time limit of {time_limit_s(work.problem, work.mode):g} s"


def give_up(store: Attempts, attempt: OpenAttempt, ending: Ending, why: str, now: datetime) -> Scored:
    """Close an attempt that failed through no fault of the submission; the run is queued again if it has retries
    left."""
    crash_point("give_up.before_commit")
    state = store.give_up(attempt, ending, why, now)
    crash_point("give_up.after_commit")
    tell(
        "gave up attempt",
        level="warning",
        run=attempt.run_id,
        attempt=attempt.number,
        ending=ending,
        why=why,
        run_state=state,
    )
    return Scored.STALE if state is None else Scored.RETRY_OR_FAILED


def keep_stale(store: Attempts, attempt: OpenAttempt, sealed: bytes, why: str, now: datetime) -> Scored:
    """Store a report that can no longer count, as evidence."""
    store.keep_stale(attempt, sealed, why, now)
    tell("kept stale report", run=attempt.run_id, attempt=attempt.number, why=why)
    return Scored.STALE


def opened(sealed: bytes, work: Work) -> Report:
    """The report, if it is sealed with this attempt's key and its fields match this attempt; else WireError."""
    report = unseal(sealed, work.key)
    expected = {
        "token": (report.token, work.attempt.name),
        "attempt": (report.attempt, work.attempt.number),
        "nonce": (report.nonce, work.nonce),
        "mode": (report.mode, work.mode),
        "problem_digest": (report.problem_digest, work.problem_digest),
    }
    for name, (said, meant) in expected.items():
        if said != meant:
            # The nonce is secret until the run has ended: name the field, not its value.
            raise WireError(f"its {name} isn't this attempt's")
    return report


def telemetry(report: Report) -> Mapping[str, Any]:
    """What the attempt's row stores besides the verdict: where it ran and when, by the node's clock."""
    return {
        "host": dict(report.host),
        "harness_digest": report.harness_digest,
        "harness_started_at_ns": report.started_at_ns,
        "harness_ended_at_ns": report.ended_at_ns,
        "phases": [dataclasses.asdict(phase) for phase in report.phases],
    }


def _end(sighting: Sighting) -> dict[str, Any]:
    return {
        "ending": sighting.ending,
        "exit_code": sighting.exit_code,
        "node": sighting.node,
        "reason": sighting.reason,
        "ended_at": sighting.ended_at.isoformat() if sighting.ended_at else None,
    }
