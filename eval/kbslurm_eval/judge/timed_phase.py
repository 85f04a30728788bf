"""The phases whose calls are timed: the public benchmarks, and the ranked ones under secret seeds."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from kbslurm_eval.cage.runners import CantStart
from kbslurm_eval.judge import finals
from kbslurm_eval.judge.call_checks import CallChecks
from kbslurm_eval.judge.launch import Allowance, Launch
from kbslurm_eval.judge.launches import Launches
from kbslurm_eval.judge.reference import Case, Prepared, ProblemTrouble
from kbslurm_eval.judge.replies import MESSAGE_CAP, Rejected, clean, status_of
from kbslurm_eval.judge.run_state import SECRET, RunState
from kbslurm_eval.shared import timing
from kbslurm_eval.shared.wire import SAMPLES_CAP, BenchmarkResult, PhaseName

WARM_UPS, NULLS, NULLS_DROPPED = 2, 10, 2
_DICE = random.SystemRandom()


class TimedPhase:
    """Several launches, each with every case's calls in an order drawn anew, the baseline's and rivals' among them."""

    def __init__(self, run: RunState, launches: Launches, calls: CallChecks) -> None:
        self._run, self._launches, self._calls = run, launches, calls
        self._rivals: finals.Rivals | None = None

    def measure(self, name: PhaseName, allowance: Allowance) -> Rejected | None:
        """All launches of this phase: what ended it, or None when every call of it counts."""
        manifest = self._run.manifest
        timed = timing.measured_cases(len(manifest.benchmarks), name, manifest.ranking_by)
        cases = [Case(index=n, params=manifest.benchmarks[n]) for n in timed]
        if not cases:
            return None
        launches = (
            manifest.budget.launches
            if name == "ranked" or manifest.mode != "leaderboard"
            else min(2, manifest.budget.launches)
        )
        calls = {case.index: self._call_count(name, case) for case in cases}
        self._run.results.budget[name] = {"launches": launches, "calls": [calls[case.index] for case in cases]}
        self._run.heartbeat.enter(name, launches * (sum(calls.values()) + len(cases) * WARM_UPS))
        at = cases[0]
        fault: Rejected | None = None
        sources = finals.rivals_of(manifest.config) if name == "ranked" else []
        self._rivals = finals.Rivals(sources=sources) if sources else None
        try:
            for number in range(launches):
                times, at, fault = self._measured(name, cases, calls, number, allowance)
                if fault is not None:
                    return fault
                self._run.results.samples += [timing.of_launch(name, n, number, found) for n, found in times.items()]
        except Rejected as rejected:
            fault = rejected
            raise
        finally:
            if self._rivals is not None:
                self._run.results.facts["rivals"] = self._rivals.told()
            for case in cases:
                mine = fault if case.index == at.index else None
                seen = timing.nets(self._run.results.samples, name, case.index)
                self._run.results.benchmarks.append(_benchmark(name, case, seen, mine, fault, launches))
        return None

    def _call_count(self, name: PhaseName, case: Case) -> int:
        """How many calls per launch: fixed by the budget and the trusted reference's own pace."""
        budget = self._run.manifest.budget
        prepared = self._run.reference.prepare(case, self._run.seed(name, case, "pace"), exact=True)
        self._calls.look_at_device(prepared)
        self._run.reference.verify(prepared)
        began = time.perf_counter_ns()
        self._run.reference.answer_again(prepared)
        pace = (time.perf_counter_ns() - began) / 1e9
        # What can't be archived isn't measured: the service computes every figure again from the samples.
        rows = 2 * 2 * budget.launches * len(self._run.manifest.benchmarks)
        most = max(1, min(budget.max_calls, SAMPLES_CAP // rows))
        return timing.budgeted_calls(calls=budget.calls, max_calls=most, target_s=budget.target_s, reference_s=pace)

    def _measured(
        self, name: PhaseName, cases: Sequence[Case], calls: dict[int, int], number: int, allowance: Allowance
    ) -> tuple[dict[int, timing.LaunchTimes], Case, Rejected | None]:
        patterns = {c.index: self._run.reference.prepare(c, self._run.seed(name, c, number, "null")) for c in cases}
        launch, at, fault = None, cases[0], None
        rivals: finals.RivalLaunches | None = None
        plan = [case for case in cases for _ in range(calls[case.index] + WARM_UPS)]
        _DICE.shuffle(plan)
        base, base_times = self._baseline(name, patterns)
        try:
            if base is not None and self._run.device_alone:
                self._base_alone(name, plan, number, base, base_times)
                base.close()
                base = None
                for _, wrong in self._calls.checked_late(name):
                    raise ProblemTrouble(f"the problem's baseline fails: {wrong.said}")
            launch = self._launches.start(name, allowance, self._launches.built(name, self._run.manifest))
            times = _nulls(launch, patterns)
            self._launches.hand_over(launch, self._run.manifest)
            rivals = self._rival_launches(name, patterns)
            counts = dict.fromkeys(times, 0)
            with _quiet():
                for step, at in enumerate(plan):
                    count = counts[at.index]
                    kept = count >= WARM_UPS
                    if base is not None and step % 2:  # candidate, baseline, baseline, candidate, and so on
                        self._base_call(name, at, (number, count), base, base_times, kept)
                    fault, ns = self._calls.one_call(name, at, self._run.seed(name, at, number, count), launch)
                    if fault is not None:
                        break
                    if base is not None and not step % 2:
                        self._base_call(name, at, (number, count), base, base_times, kept)
                    if rivals is not None:
                        rivals.step(at, (number, count), kept=kept)
                    counts[at.index] += 1
                    if kept:
                        times[at.index].calls_ns.append(ns)
                        launch.keep(at.index)
                    if step % 8 == 7:
                        times[at.index].null_ns.append(launch.null(patterns[at.index]))
                    self._run.heartbeat.step()
            if fault is None:
                launch.witness(name, times)
            if rivals is not None and fault is None:
                self._run.results.samples += rivals.samples(name, number, base_times)
        except ProblemTrouble as trouble:
            raise self._launches.to_blame(launch, trouble) from None
        finally:
            self._launches.end(name, launch)
            if base is not None:
                base.close()
            if rivals is not None:
                rivals.close()
        for case, wrong in self._calls.checked_late(name):
            return times, case, wrong
        for index, found in base_times.items():
            times[index].baseline = found
        return times, at, fault

    def _baseline(
        self, name: PhaseName, patterns: dict[int, Prepared]
    ) -> tuple[Launch | None, dict[int, timing.LaunchTimes]]:
        """A runner with the problem's own trusted submission, when it has one: stopped while the candidate runs."""
        source = self._run.manifest.config.get("baseline")
        if not isinstance(source, str):
            return None, {}
        whole = self._run.manifest.limits.total_s
        theirs = replace(self._run.manifest, source=source, config={**self._run.manifest.config, "role": "baseline"})
        try:
            built = self._launches.built(name, theirs)
        except Rejected as fault:
            raise ProblemTrouble(f"the problem's baseline doesn't compile: {fault.said}") from None
        base = self._launches.start(name, Allowance(left_s=whole, whole_s=whole), built)
        try:
            times = _nulls(base, patterns)
            self._launches.hand_over(base, theirs)
        except Rejected as fault:
            base.close()
            raise ProblemTrouble(f"the problem's baseline doesn't run: {fault.said}") from None
        except BaseException:
            base.close()
            raise
        return base, times

    def _base_alone(
        self,
        name: PhaseName,
        plan: Sequence[Case],
        number: int,
        base: Launch,
        times: dict[int, timing.LaunchTimes],
    ) -> None:
        """All of the baseline's calls before the candidate starts, on a device that only one process may use."""
        counts = dict.fromkeys(times, 0)
        with _quiet():
            for at in plan:
                count = counts[at.index]
                self._base_call(name, at, (number, count), base, times, count >= WARM_UPS)
                counts[at.index] += 1

    def _rival_launches(self, name: PhaseName, patterns: dict[int, Prepared]) -> finals.RivalLaunches | None:
        """The rivals' runners for one launch, where this is a final."""
        if self._rivals is None or name != "ranked":
            return None
        if self._run.device_alone:
            raise CantStart("a final's kernels take turns, and this device is in exclusive-process mode")
        each_s = self._run.manifest.limits.ranked_s / finals.many(self._run.manifest.config)

        def open_one(rival: int, source: str) -> tuple[Launch, dict[int, timing.LaunchTimes]]:
            theirs = replace(
                self._run.manifest, source=source, config={**self._run.manifest.config, "role": f"rival{rival}"}
            )
            if rival not in self._run.rival_allowances:  # one for all launches, as everybody has in an ordinary run
                self._run.rival_allowances[rival] = Allowance(left_s=each_s, whole_s=each_s)
            launch = self._launches.start(name, self._run.rival_allowances[rival], self._launches.built(name, theirs))
            try:
                times = _nulls(launch, patterns)
                self._launches.hand_over(launch, theirs)
            except BaseException:
                launch.close()
                raise
            return launch, times

        def call(launch: Launch, case: Case, parts: tuple[object, ...]) -> tuple[Exception | None, int]:
            return self._calls.one_call(name, case, self._run.seed(name, case, *parts), launch)

        rivals = finals.RivalLaunches(rivals=self._rivals, open_one=open_one, call=call, fault=Rejected)
        try:
            rivals.begin()
        except BaseException:
            rivals.close()
            raise
        return rivals

    def _base_call(
        self,
        name: PhaseName,
        case: Case,
        parts: tuple[int, int],
        base: Launch,
        times: dict[int, timing.LaunchTimes],
        kept: bool,
    ) -> None:
        try:
            fault, ns = self._calls.one_call(name, case, self._run.seed(name, case, *parts, "baseline"), base)
        except Rejected as rejected:
            fault, ns = rejected, 0
        if fault is not None:
            raise ProblemTrouble(f"the problem's baseline fails: {fault.said}")
        if kept:
            times[case.index].calls_ns.append(ns)


def _nulls(launch: Launch, patterns: dict[int, Prepared]) -> dict[int, timing.LaunchTimes]:
    """What a null call costs in this runner, for each case, before anything of a submission is in it."""
    times = {}
    launch.settle(next(iter(patterns.values())))
    for index, pattern in patterns.items():
        found = [launch.null(pattern) for _ in range(NULLS)]
        bare = [launch.bare_null(pattern) for _ in range(NULLS)]
        times[index] = timing.LaunchTimes(trusted_null_ns=found[NULLS_DROPPED:], bare_null_ns=bare[NULLS_DROPPED:])
    return times


def _benchmark(
    name: PhaseName,
    case: Case,
    nets: list[timing.Net],
    mine: Rejected | None,
    any_fault: Rejected | None,
    launches: int,
) -> BenchmarkResult:
    passed = BenchmarkResult(phase=name, index=case.index, spec=case.spec, status="pass")
    if any_fault is not None or len(nets) < launches:
        if mine is None:
            return replace(passed, status="skipped")
        said = mine.bare_reason if name in SECRET and mine.verdict != "violation" else mine.said
        return replace(passed, status=status_of(mine), message=clean(said, MESSAGE_CAP))
    return replace(passed, **timing.figures(nets))


@contextmanager
def _quiet() -> Iterator[None]:
    """No collection of garbage while calls are timed."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
