"""A backend that runs nothing and answers what the test says: for answers that no real place can be made to give."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbslurm.domain.run import Ending, Handle, JobName, OpenAttempt, Seen, Sighting, Work
from kbslurm.errors import BackendTrouble
from kbslurm.ports import JobSpec
from kbslurm_eval.shared import timing
from kbslurm_eval.shared.wire import PHASES, WIRE_VERSION, Isolation, PhaseResult, Report, commitment, seal
from tests.timed import a_launch, timed

UNKNOWN = Sighting(seen=Seen.UNKNOWN)
ABSENT = Sighting(seen=Seen.ABSENT)
WAITING = Sighting(seen=Seen.WAITING)
RUNNING = Sighting(seen=Seen.RUNNING, node="node1")


def ended(ending: Ending = Ending.REPORTED, **facts: object) -> Sighting:
    return Sighting(seen=Seen.ENDED, ending=ending, **facts)  # type: ignore[arg-type]


@dataclass
class Puppet:
    """Everything that was asked of it is in `calls`; `sightings` and `reports` are what it answers, by job name."""

    name: str = "puppet"
    slots: Mapping[str, int] = field(default_factory=lambda: {"A100": 4})
    sightings: dict[JobName, Sighting] = field(default_factory=dict)
    reports: dict[JobName, bytes] = field(default_factory=dict)
    submitted: list[JobSpec] = field(default_factory=list)
    cancelled: list[JobName] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    on_submit: Callable[[JobSpec], Handle] | None = None
    trouble: bool = False
    default: Sighting = UNKNOWN
    gate: threading.Event | None = None

    def capacity(self) -> Mapping[str, int]:
        return self.slots

    def submit(self, job: JobSpec) -> Handle:
        self._called("submit")
        self.submitted.append(job)
        return self.on_submit(job) if self.on_submit else Handle(f"puppet-{len(self.submitted)}")

    def find(self, name: JobName) -> Sighting:
        self._called("find")
        return self.sightings.get(name, self.default)

    def poll(self, attempts: Sequence[OpenAttempt]) -> Mapping[JobName, Sighting]:
        self._called("poll")
        return {a.name: self.sightings.get(a.name, self.default) for a in attempts}

    def collect(self, attempt: OpenAttempt) -> bytes | None:
        self.calls.append("collect")
        return self.reports.get(attempt.name)

    def cancel(self, attempt: OpenAttempt) -> None:
        self._called("cancel")
        self.cancelled.append(attempt.name)

    def _called(self, what: str) -> None:
        self.calls.append(what)
        if self.gate is not None:
            self.gate.wait(120)
        if self.trouble:
            raise BackendTrouble(self.name, "the controller doesn't answer")


def sealed_report(work: Work, **changes: Any) -> bytes:
    """What the harness would have sealed for this attempt, changed where the test wants it.

    Times follow from samples: `score_s` and `interval_s` (of which the upper end counts) are what these are made to
    come to, `baseline_s` what the problem's baseline took where it has one.
    """
    key = changes.pop("key", work.key)
    assert isinstance(key, bytes)
    report = Report(
        version=WIRE_VERSION,
        token=work.attempt.name,
        attempt=work.attempt.number,
        nonce=work.nonce,
        mode=work.mode,
        problem_digest=work.problem_digest,
        harness_digest="h",
        verdict="passed",
        reason="",
        score_s=None,
        interval_s=None,
        tests=[],
        benchmarks=[],
        phases=[PhaseResult(name=n, passed=True, started_at_ns=1, ended_at_ns=2) for n in PHASES[work.mode]],
        isolation=Isolation(level=2, means="test"),
        started_at_ns=1,
        ended_at_ns=2,
        submission_sha256=hashlib.sha256(work.source.encode()).hexdigest(),
        seed_commitment=commitment(work.secret_seed),
    )
    score_s, interval_s = changes.pop("score_s", 0.5), changes.pop("interval_s", None)
    baseline_s, rivals = changes.pop("baseline_s", 0.5), changes.pop("rivals", ())
    if changes.get("verdict", "passed") == "passed":
        doubt = interval_s[1] / score_s - 1 if interval_s else 0.2
        problem = work.problem
        told = timed(
            work.mode,
            len(problem.benchmarks),
            launches=problem.budget.launches,
            calls=problem.budget.calls,
            score_s=score_s,
            doubt=doubt,
            ranking_by=problem.ranking_by,
            baseline_s=None if problem.baseline is None else baseline_s,
        )
        changes["benchmarks"] = [*told.pop("benchmarks"), *changes.get("benchmarks", ())]
        told["samples"] += [
            a_launch(
                "ranked",
                index,
                launch,
                rival_s * 1e9 * (1 + 0.001 * (launch % 2)),
                calls=problem.budget.calls,
                baseline_ns=None if problem.baseline is None else baseline_s * 1e9,
                rival=1 + n,
            )
            for n, rival_s in enumerate(rivals)
            if rival_s is not None
            for index in timing.measured_cases(len(problem.benchmarks), "ranked", problem.ranking_by)
            for launch in range(problem.budget.launches)
        ]
        names = [{"rival": n, "verdict": "passed" if s else "wrong", "reason": ""} for n, s in enumerate(rivals)]
        report = dataclasses.replace(report, **told, host={"rivals": names} if rivals else {})
    return seal(dataclasses.replace(report, **changes), key).encode()
