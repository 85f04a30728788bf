"""The phases whose calls are timed: the public benchmarks, and the ranked ones under secret seeds."""

from __future__ import annotations

import gc
import math
import os
import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kbslurm_eval.cage.runners import CantStart
from kbslurm_eval.judge import clock_watch, finals, uncounted_calls
from kbslurm_eval.judge.builds import NoRoom, in_mib
from kbslurm_eval.judge.call_checks import CallChecks
from kbslurm_eval.judge.call_plan import WARM_UPS, CallPlan
from kbslurm_eval.judge.launch import Allowance, Launch
from kbslurm_eval.judge.launches import Launches
from kbslurm_eval.judge.reference import Case, Prepared, ProblemTrouble, Reference, Spent
from kbslurm_eval.judge.replies import MESSAGE_CAP, Rejected, clean, status_of
from kbslurm_eval.judge.run_state import SECRET, RunState
from kbslurm_eval.shared import time_limits, timing
from kbslurm_eval.shared.wire import BenchmarkResult, Manifest, PhaseName

NULLS, NULLS_DROPPED = 10, 2
LINK_LEAST = 1 << 20  # more than its files take where inputs are small
_DICE = random.SystemRandom()


class TimedPhase:
    """Several launches, each with every case's calls, the baseline's and rivals' among them."""

    def __init__(self, run: RunState, launches: Launches, calls: CallChecks) -> None:
        self._run, self._launches, self._calls = run, launches, calls
        self._rivals: finals.Rivals | None = None
        # in a final whose lead is one of the finalists: what ended it, and where; the others go on
        self._lead_fell: Rejected | None = None
        self._fell_at: Case | None = None
        self._plan = CallPlan(run, calls)
        self._started_s = 0.0
        self._debts = uncounted_calls.Debts()

    def measure(self, name: PhaseName, allowance: Allowance) -> Rejected | None:
        """All launches of this phase: what ended it, or None when every call of it counts."""
        manifest = self._run.manifest
        timed = timing.measured_cases(len(manifest.benchmarks), name, manifest.ranking_by)
        cases = [Case(index=n, params=manifest.benchmarks[n]) for n in timed]
        if not cases:
            return None
        began, self._started_s = time.perf_counter(), 0.0
        with self._starting():
            cases = [self._plan.learn(name, case) for case in cases]
        before = replace(self._run.reference.spent), self._run.results.called_ns
        launches = self._plan.launches(name)
        calls = {case.index: self._plan.calls(case.index) for case in cases}
        self._run.results.budget[name] = {"launches": launches, "calls": [calls[case.index] for case in cases]}
        steps = sum(self._plan.goes(case.index, calls[case.index]) for case in cases)
        self._tell_fewer(name, launches)
        self._run.heartbeat.enter(name, launches * steps)
        at = cases[0]
        fault: Rejected | None = None
        sources = time_limits.rivals_of(manifest.config) if name == "ranked" else []
        self._rivals = finals.Rivals(sources=sources) if sources else None
        self._run.runners.beside = len(sources)
        longest = _Longest()
        number, planned = 0, launches
        self._debts = uncounted_calls.Debts()
        try:
            while number < launches and (number < manifest.budget.launches or self._has_time(longest, allowance)):
                with longest.launch(allowance):
                    times, at, fault = self._measured(name, cases, calls, number, allowance)
                if fault is not None and self._lead_fell is None:
                    return fault
                self._run.results.samples += [timing.of_launch(name, n, number, found) for n, found in times.items()]
                number += 1
                if number >= planned:
                    self._charge(name, range(0 if number == planned else number - 1, number))
                if name == "ranked" and number == manifest.budget.launches and self._rivals is None:
                    launches = self._launches_asked(timed, number)
                    self._run.heartbeat.of += (launches - number) * steps
            self._run.results.budget[name]["launches"] = number
            self._tell_precision(name, timed, launches, number)
        except Rejected as rejected:
            fault = rejected
            raise
        finally:
            self._run.runners.beside = 0
            fault, at = fault or self._lead_fell, self._fell_at or at
            if self._rivals is not None:
                self._run.results.facts["rivals"] = self._rivals.told()
            self._run.results.facts.setdefault("spent", {})[name] = self._spent(time.perf_counter() - began, *before)
            for case in cases:
                mine = fault if case.index == at.index else None
                seen = timing.nets(self._run.results.samples, name, case.index)
                self._run.results.benchmarks.append(self._benchmark(name, case, seen, mine, fault))
        return self._lead_fell

    def _owes(
        self,
        rival: int,
        number: int,
        launch: Launch,
        times: Mapping[int, timing.LaunchTimes],
        base: Launch | None,
        base_times: Mapping[int, timing.LaunchTimes],
    ) -> None:
        """What a launch's calls that don't count took too long. The baseline is the problem's own."""
        for index, found in times.items():
            beside, beside_each = 0.0, None
            if base is not None:
                theirs, counted = base.uncounted_ns.get(index, ()), base_times[index].calls_ns
                beside = uncounted_calls.beside(theirs, base.uncounted_alone_ns.get(index, ()), counted)
                if counted and self._plan.is_short_alone(index):
                    beside_each = beside * len(theirs) / len(counted)
            mine, nulls = launch.uncounted_ns.get(index, ()), launch.nulls_ns.get(index, ())
            owes = uncounted_calls.share(mine, found.calls_ns, beside, nulls, beside_each=beside_each)
            self._debts.add(rival, index, number, owes)

    def _charge(self, name: PhaseName, launches: range) -> None:
        """It is in the calls that do."""
        mine = [one for one in self._run.results.samples if one.launch in launches]
        if self._debts.charge(name, mine):
            self._launches.remark(name, uncounted_calls.TOLD)

    def _launches_asked(self, timed: Sequence[int], planned: int) -> int:
        """How many launches the board's precision calls for, by the spread of the planned ones."""
        budget = self._run.manifest.budget
        return timing.launches_for(budget.precision, self._scores(timed), max(planned, budget.most_launches))

    def _scores(self, timed: Sequence[int]) -> list[float]:
        """Each launch's score in the ranked phase."""
        found = [timing.paired(timing.nets(self._run.results.samples, "ranked", index)) for index in timed]
        return timing.launch_scores(found, self._run.manifest.ranking_by)

    def _has_time(self, longest: _Longest, allowance: Allowance) -> bool:
        """Whether one more launch fits into what is left, and the hidden cases after it."""
        before = sum(p.ended_at_ns - p.started_at_ns for p in self._run.results.phases if p.name == "test") / 1e9
        return allowance.left_s > 1.5 * longest.theirs_s and self._run.left_s > 1.5 * (longest.whole_s + before)

    def _tell_precision(self, name: PhaseName, timed: Sequence[int], asked: int, had: int) -> None:
        """What was asked for and what came of it, where a precision was asked for."""
        budget = self._run.manifest.budget
        if name != "ranked" or budget.precision <= 0 or had < 2:
            return
        found = timing.interval(self._scores(timed), budget.launches)
        reached = math.sqrt(found.high / found.low) - 1
        why = ""
        if self._rivals is not None:
            why = "a final has as many launches as are planned"
        elif had < asked:
            why = "the time limits allow no more launches"
        elif reached > budget.precision * (1 + 1e-9):
            why = f"{asked} launches are the most" if asked >= budget.most_launches else "later launches scattered more"
        told = {"asked": budget.precision, "reached": reached, "launches": had, "why": why}
        self._run.results.facts["precision"] = told

    def _benchmark(
        self, name: PhaseName, case: Case, nets: list[timing.Net], mine: Rejected | None, any_fault: Rejected | None
    ) -> BenchmarkResult:
        passed = BenchmarkResult(phase=name, index=case.index, spec=case.spec, status="pass")
        had = self._run.results.budget[name]["launches"]
        if any_fault is not None or len(nets) < had:
            if mine is None:
                return replace(passed, status="skipped")
            said = mine.bare_reason if name in SECRET and mine.verdict != "violation" else mine.said
            return replace(passed, status=status_of(mine), message=clean(said, MESSAGE_CAP))
        return replace(passed, **timing.figures(nets, self._run.manifest.budget.launches))

    def _tell_fewer(self, name: PhaseName, launches: int) -> None:
        declared = self._plan.declared(name)
        if launches < declared:
            self._run.results.budget[name]["declared"] = declared
            self._run.results.facts["fewer_launches"] = {"declared": declared, "launches": launches}

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """The time in here is spent before and after calls: it hardly depends on how many there are."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._started_s += time.perf_counter() - began

    def _spent(self, whole_s: float, before: Spent, called_ns: int) -> dict[str, float]:
        """What this phase's time went into: calls, the problem's own code around them, starts, and the rest."""
        problem = self._run.reference.spent.since(before)
        told = {
            "whole_s": whole_s,
            "starts_s": self._started_s,
            "calls_s": (self._run.results.called_ns - called_ns) / 1e9,
            "generation_s": problem.generation_s,
            "checks_s": problem.checks_s,
        }
        return {name: round(value, 6) for name, value in told.items()}

    def _measured(
        self, name: PhaseName, cases: Sequence[Case], calls: dict[int, int], number: int, allowance: Allowance
    ) -> tuple[dict[int, timing.LaunchTimes], Case, Rejected | None]:
        patterns = {c.index: self._plan.pattern(c.index) for c in cases}
        launch, at, fault = None, cases[0], self._lead_fell
        times: dict[int, timing.LaunchTimes] = {}
        rivals: finals.RivalLaunches | None = None
        plan = self._in_order(cases, calls)
        with self._starting():
            self._make_room(name, patterns)
            fault = self._lead_fell
            base, base_times = self._baseline(name, patterns)
        try:
            alone = self._alone(name, cases, number, base)
            if base is not None and self._run.device_alone:
                self._base_alone(name, plan, calls, number, base, base_times, allowance)
                base.close()
                base = None
                for _, wrong in self._calls.checked_late(name):
                    raise ProblemTrouble(f"the problem's baseline fails: {wrong.said}")
            with self._starting():
                if self._lead_fell is None:
                    # a final's lead that is the problem's own isn't to be ended for what a finalist holds
                    self._run.runners.spared = self._rivals is not None and not self._lead_is_finalist
                    try:
                        launch = self._launches.start(name, allowance, self._launches.built(name, self._run.manifest))
                    finally:
                        self._run.runners.spared = False
                    times = self._nulls(launch, patterns)
                    try:
                        self._launches.hand_over(launch, self._run.manifest)
                    except Rejected as ending:
                        fault, launch, times = self._lead_falls(name, cases[0], ending, launch), None, {}
                rivals = self._rival_launches(name, patterns)
            counts = dict.fromkeys(patterns, 0)

            def taken() -> _Taken:
                rows = [times, base_times, *(rivals.times.values() if rivals is not None else ())]
                return _Taken(rows, launch)

            with _quiet():
                for step, at in enumerate(self._steadily(plan, allowance, taken)):
                    count = counts[at.index]
                    if launch is None:
                        self._rivals_alone(rivals, at, number, counts, calls)
                        continue
                    kept = count >= WARM_UPS and len(times[at.index].calls_ns) < calls[at.index]
                    wanted = calls[at.index] - len(times[at.index].calls_ns) if kept else 0
                    if base is not None and step % 2:  # candidate, baseline, baseline, candidate, and so on
                        self._base_call(
                            name, at, (number, count), base, base_times, wanted, after_itself=rivals is None
                        )
                    launch.starts = count == 0
                    launch.turn_to(at.index)
                    try:
                        if rivals is not None or (base is not None and step % 2):
                            fault = self._warmed(name, at, (number, count), launch, wanted)
                        if fault is None:
                            fault, took = self._calls_of(name, at, (number, count), launch, wanted)
                    except Rejected as ending:
                        ended = self._calls.timed_out_at(name, at, ending)
                        fault, launch, times = self._lead_falls(name, at, ended, launch), None, {}
                        self._rivals_alone(rivals, at, number, counts, calls)
                        continue
                    launch.starts = False
                    if fault is not None and not self._lead_is_finalist:
                        break
                    if fault is not None:
                        fault, launch, times = self._lead_falls(name, at, fault, launch), None, {}
                        self._rivals_alone(rivals, at, number, counts, calls)
                        continue
                    if base is not None and not step % 2:
                        self._base_call(name, at, (number, count), base, base_times, wanted)
                    if rivals is not None:
                        rivals.step(at, (number, count), wanted=wanted)
                    counts[at.index] += len(took)
                    for back, ns in _that_count(took, wanted):
                        times[at.index].calls_ns.append(ns)
                        launch.keep(at.index, back)
                    if step % 8 == 7:
                        try:
                            null_ns = self._null(launch, patterns[at.index])
                        except Rejected as ending:
                            fault, launch, times = self._lead_falls(name, at, ending, launch), None, {}
                            continue
                        times[at.index].null_ns.append(null_ns)
                        usual_ns = self._plan.group(at.index) * statistics.median(times[at.index].trusted_null_ns)
                        longer_ns = max(0, launch.null_took_ns - round(usual_ns))
                        launch.nulls_ns.setdefault(at.index, []).append(longer_ns)
                    self._run.heartbeat.step()
            if launch is not None and fault is None:
                launch.witness(name, times)
                self._owes(0, number, launch, times, base, base_times)
            if rivals is not None:
                for rival, theirs in rivals.launches.items():
                    self._owes(1 + rival, number, theirs, rivals.times[rival], base, base_times)
            if rivals is not None and fault is self._lead_fell:
                self._run.results.samples += rivals.samples(name, number, base_times)
        except ProblemTrouble as trouble:
            raise self._launches.to_blame(launch, trouble) from None
        finally:
            with self._starting():
                self._launches.end(name, launch)
                if base is not None:
                    base.close()
                if rivals is not None:
                    rivals.close()
        for case, wrong in self._calls.checked_late(name):
            return times, case, wrong
        for index, found in base_times.items():
            times[index].baseline = found
            times[index].alone_ns += alone.get(index, ())
        return times, at, fault

    def _in_order(self, cases: Sequence[Case], calls: Mapping[int, int]) -> list[Case]:
        """Whose go comes when in one launch. Warm-ups come first, as a part of the start: among calls that count they
        would be a place to work for these. So would be those of a longer case, hence one case after another, in an
        order drawn anew."""
        first = [case for case in cases for _ in range(self._plan.warm_ups(case.index))]
        _DICE.shuffle(first)
        order = _DICE.sample(cases, len(cases))
        return first + [case for case in order for _ in range(self._plan.counted(case.index, calls[case.index]))]

    @property
    def _lead_is_finalist(self) -> bool:
        return self._rivals is not None and finals.lead_is_finalist(self._run.manifest.config)

    def without_lead(self, fault: Rejected) -> None:
        """This final's lead failed in a phase before: the ranked one is measured for the others."""
        self._lead_fell = fault

    def _lead_falls(self, name: PhaseName, at: Case, fault: Rejected, launch: Launch) -> Rejected:
        """Its fault ends nothing for the others if it is a finalist as they are; raises it otherwise."""
        if not self._lead_is_finalist:
            raise fault from None
        self._lead_fell, self._fell_at = fault, at
        with self._starting():
            self._launches.end(name, launch)
        return fault

    def _rivals_alone(
        self,
        rivals: finals.RivalLaunches | None,
        at: Case,
        number: int,
        counts: dict[int, int],
        calls: Mapping[int, int],
    ) -> None:
        """One step of a final that goes on without its lead."""
        count, wanted = counts[at.index], 0
        if rivals is not None:
            if count >= WARM_UPS:
                wanted = calls[at.index] - rivals.had(at.index, calls[at.index])
            rivals.step(at, (number, count), wanted=wanted)
        counts[at.index] += self._plan.next_go(at.index, wanted)
        self._run.heartbeat.step()

    def _as(self, source: str, role: str) -> Manifest:
        """What a runner in another role is given: this text in the place of the submission."""
        return replace(self._run.manifest, source=source, config={**self._run.manifest.config, "role": role})

    def _make_room(self, name: PhaseName, patterns: Mapping[int, Prepared]) -> None:
        """Before anybody of a final starts: those whose builds are too large to lie beside all links are out, instead
        of ending it for everybody."""
        rivals = self._rivals
        if rivals is None or not isinstance(self._run.reference, Reference):
            return  # ranks compile for themselves
        sizes: dict[int, int] = {}
        for rival, source in enumerate(rivals.sources):
            if rival in rivals.out:
                continue
            try:
                built = self._launches.built(name, self._as(source, f"rival{rival}"))
            except Rejected as rejected:
                rivals.fell(rival, rejected)
            except NoRoom as lacking:
                rivals.fell(rival, Rejected("memory", str(lacking)))
            else:
                sizes[rival] = 0 if built is None else built.size
        base = self._run.manifest.config.get("baseline")
        others = [self._run.manifest] if self._lead_fell is None else []
        others += [self._as(base, "baseline")] if isinstance(base, str) else []
        taken = [0 if (built := self._run.builds.done(one)) is None else built.size for one in others]
        if taken and self._lead_is_finalist:
            sizes[finals.LEAD] = taken.pop(0)
        copies = 2 if self._run.runners.bare else 1  # a bare runner's own is there, too
        each = max(len(one.packed) + one.layout.size for one in patterns.values()) * 5 // 4 + LINK_LEAST
        place = self._run.runners.prepare().parent
        told = os.statvfs(place)
        room = told.f_bavail * told.f_frsize - sum(each + copies * size for size in taken)
        for who in finals.without_room({who: copies * size for who, size in sizes.items()}, each, room):
            fault = Rejected(
                "memory",
                f"there is no room for the {in_mib(sizes[who])} that its build left beside all other finalists: the"
                f" memory that runners' links lie in ({place}) has {in_mib(told.f_blocks * told.f_frsize)} in all, and"
                f" each finalist needs {in_mib(each)} of it for inputs and answers",
            )
            if who == finals.LEAD:
                self._lead_fell, self._fell_at = fault, None
            else:
                rivals.fell(who, fault)

    def _baseline(
        self, name: PhaseName, patterns: dict[int, Prepared]
    ) -> tuple[Launch | None, dict[int, timing.LaunchTimes]]:
        """A runner with the problem's own trusted submission, when it has one: stopped while the candidate runs."""
        source = self._run.manifest.config.get("baseline")
        if not isinstance(source, str):
            return None, {}
        whole = self._run.manifest.limits.total_s
        theirs = self._as(source, "baseline")
        try:
            built = self._launches.built(name, theirs)
        except Rejected as fault:
            raise ProblemTrouble(f"the problem's baseline doesn't compile: {fault.said}") from None
        self._run.runners.spared = True  # it isn't to be ended for what the submission holds
        try:
            base = self._launches.start(name, Allowance(left_s=whole, whole_s=whole), built)
        finally:
            self._run.runners.spared = False
        try:
            times = self._nulls(base, patterns)
            self._launches.hand_over(base, theirs)
        except Rejected as fault:
            base.close()
            raise ProblemTrouble(f"the problem's baseline doesn't run: {fault.said}") from None
        except BaseException:
            base.close()
            raise
        return base, times

    def _alone(self, name: PhaseName, cases: Sequence[Case], number: int, base: Launch | None) -> dict[int, list[int]]:
        """How long some calls of the baseline take before the submission is there. In a final it would be told of
        nobody."""
        found: dict[int, list[int]] = {}
        if base is None or self._run.on_device or self._rivals is not None:
            return found
        with self._starting(), _quiet():
            for case in cases:
                warm_ups, many = self._plan.alone(case.index)
                counted = [1] * many if self._plan.group(case.index) == 1 else [many]
                for n, wanted in enumerate([0] * warm_ups + counted):
                    try:
                        fault, took = self._called(name, case, (number, n), base, wanted, "baseline", "alone")
                    except Rejected as rejected:
                        fault, took = rejected, []
                    if fault is not None:
                        raise ProblemTrouble(f"the problem's baseline fails: {fault.said}")
                    if n == 0:
                        base.come_to_rest()
                    found.setdefault(case.index, []).extend(ns for _, ns in _that_count(took, wanted))
        return found

    def _base_alone(
        self,
        name: PhaseName,
        plan: Sequence[Case],
        calls: Mapping[int, int],
        number: int,
        base: Launch,
        times: dict[int, timing.LaunchTimes],
        allowance: Allowance,
    ) -> None:
        """All of the baseline's calls before the candidate starts, on a device that only one process may use."""
        counts = dict.fromkeys(times, 0)
        with _quiet():
            for at in self._steadily(plan, allowance, lambda: _Taken([times], base)):
                count = counts[at.index]
                kept = count >= WARM_UPS and len(times[at.index].calls_ns) < calls[at.index]
                self._base_call(name, at, (number, count), base, times, int(kept), after_itself=True)
                counts[at.index] += 1

    def _steadily(self, plan: Sequence[Case], allowance: Allowance, taken: Callable[[], _Taken]) -> Iterator[Case]:
        """The plan's cases in order. Where the device's clocks didn't hold during a batch of them, what was taken is
        taken back and they come again at the end, as far as the budget and the submission's time allow."""
        size, watch = clock_watch.BATCH, self._run.clocks
        todo = deque(plan[at : at + size] for at in range(0, len(plan), size))
        again = math.ceil(clock_watch.AGAIN_SHARE * len(todo))
        while todo:
            batch, before, left_s = todo.popleft(), taken(), allowance.left_s
            with watch.batch() as one:
                yield from batch
            # once more only if that fits into the time that is left
            if one.disturbed and again > 0 and allowance.left_s > 2 * (left_s - allowance.left_s):
                watch.discard(sum(self._plan.group(case.index) for case in batch))
                before.take_back()
                todo.append(batch)
                again -= 1
                self._run.heartbeat.of += len(batch)
            elif one.disturbed:
                watch.kept_batches += 1

    def _rival_launches(self, name: PhaseName, patterns: dict[int, Prepared]) -> finals.RivalLaunches | None:
        """The rivals' runners for one launch, where this is a final."""
        if self._rivals is None or name != "ranked":
            return None
        if self._run.device_alone:
            raise CantStart("a final's kernels take turns, and this device is in exclusive-process mode")
        each_s = self._run.manifest.limits.ranked_s / finals.many(self._run.manifest.config)

        def open_one(rival: int, source: str) -> tuple[Launch, dict[int, timing.LaunchTimes]]:
            theirs = self._as(source, f"rival{rival}")
            if rival not in self._run.rival_allowances:  # one for all launches, as everybody has in an ordinary run
                starts_s = self._run.manifest.build.limit_s
                self._run.rival_allowances[rival] = Allowance(left_s=each_s, whole_s=each_s, starts_left_s=starts_s)
            try:
                launch = self._launches.start(
                    name, self._run.rival_allowances[rival], self._launches.built(name, theirs)
                )
            except NoRoom as lacking:
                raise Rejected("memory", str(lacking)) from None
            try:
                times = self._nulls(launch, patterns)
                self._launches.hand_over(launch, theirs)
            except BaseException:
                launch.close()
                raise
            return launch, times

        def call(
            launch: Launch, case: Case, parts: tuple[int, int], role: tuple[str, ...], wanted: int
        ) -> tuple[Exception | None, list[int]]:
            launch.starts = parts[1] == 0
            fault = self._warmed(name, case, parts, launch, wanted, *role)
            if fault is not None:
                return fault, []
            fault, took = self._calls_of(name, case, parts, launch, wanted, *role)
            launch.starts = False
            return fault, [ns for _, ns in _that_count(took, wanted)]

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
        wanted: int,
        *,
        after_itself: bool = False,
    ) -> None:
        """A go of the baseline's."""
        took: list[int] = []
        try:
            if not after_itself and (fault := self._warmed(name, case, parts, base, wanted, "baseline")) is not None:
                raise fault
            fault, took = self._calls_of(name, case, parts, base, wanted, "baseline")
        except Rejected as rejected:
            fault = rejected
        if fault is not None:
            raise ProblemTrouble(f"the problem's baseline fails: {fault.said}")
        if after_itself and wanted and len(took) > 1:
            base.uncounted_alone_ns.setdefault(case.index, []).append(took[0])
        times[case.index].calls_ns += [ns for _, ns in _that_count(took, wanted)]

    def _nulls(self, launch: Launch, patterns: dict[int, Prepared]) -> dict[int, timing.LaunchTimes]:
        """What a null call costs in this runner, for each case, before anything of a submission is in it."""
        times = {}
        for pattern in patterns.values():
            if pattern.ahead:
                launch.tell_ahead(pattern)
        launch.settle(next(iter(patterns.values())))
        launch.practise(next(iter(patterns.values())))
        for index, pattern in patterns.items():
            found, leeway = [], []
            for _ in range(NULLS):
                found.append(self._null(launch, pattern))
                leeway.append(launch.leeway_ns)
            # of calls in one go nothing is decoded when the clock runs
            bare = [launch.bare_null(pattern) for _ in range(NULLS)] if self._plan.group(index) == 1 else found
            times[index] = timing.LaunchTimes(
                trusted_null_ns=found[NULLS_DROPPED:],
                bare_null_ns=bare[NULLS_DROPPED:],
                leeway_ns=[] if self._run.on_device else leeway[NULLS_DROPPED:],
            )
        return times

    def _null(self, launch: Launch, pattern: Prepared) -> int:
        """One null call. Where making the arrays isn't in it, so little is left that it shows what the judge did
        before: then the same as before a call, whose input is made and packed, unless that takes long."""
        group, launch.null_took_ns = self._plan.group(pattern.case.index), 0
        if group > 1:
            return launch.null_in_one_go(pattern, group)
        if pattern.ahead and not launch.is_late(pattern) and self._plan.is_soon_prepared(pattern.case.index):
            self._run.reference.prepare(pattern.case, self._run.seed("benchmark", pattern.case, "null"))
        return launch.null(pattern)

    def _warmed(
        self, name: PhaseName, case: Case, parts: tuple[int, int], launch: Launch, wanted: int, *role: str
    ) -> Rejected | None:
        """A call that doesn't count, before one that does and follows somebody else's, where one may be told from
        another by what is in the caches: everybody finds them as it left them itself. Otherwise whoever is called after
        itself more often would be faster, and a submission may write to as much memory as it likes before each of its
        calls. Not where there is no `kb_warm_up`: work that is put off until such a call would be free for whoever does
        it.
        """
        if not wanted or self._run.on_device or not self._plan.is_short_alone(case.index):
            return None
        fault, took = self._calls_of(name, case, parts, launch, 1, *role, "before")
        launch.uncounted_ns.setdefault(case.index, []).extend(took)
        return fault

    def _calls_of(
        self, name: PhaseName, case: Case, parts: tuple[int, int], launch: Launch, wanted: int, *role: str
    ) -> tuple[Rejected | None, list[int]]:
        """One go of this launch, of whose calls so many may count: its first fault, and how long each call took."""
        fault, took = self._called(name, case, parts, launch, wanted, *role)
        if wanted and len(took) > 1:
            launch.uncounted_ns.setdefault(case.index, []).append(took[0])
        if fault is None and parts[1] == 0:
            self._rest(launch)
        return fault, took

    def _rest(self, launch: Launch) -> None:
        """What a first call has begun comes to rest: still a part of the launch's start."""
        with self._starting():
            launch.come_to_rest()

    def _called(
        self, name: PhaseName, case: Case, parts: tuple[int, int], launch: Launch, wanted: int, *role: str
    ) -> tuple[Rejected | None, list[int]]:
        (number, count), group = parts, self._plan.next_go(case.index, wanted)
        seeds = [self._run.seed(name, case, number, count + n, *role) for n in range(group)]
        if group > 1 and (found := self._calls.in_one_go(name, case, seeds, launch)) is not None:
            return found
        took: list[int] = []
        if group > 1:  # some of those may have been seen
            seeds = [self._run.seed(name, case, number, count + n, *role, "alone") for n in range(group)]
        copied = self._plan.group(case.index) > 1  # what is taken off is that of calls in one go
        for seed in seeds:
            fault, ns = self._calls.one_call(name, case, seed, launch, copied=copied)
            if fault is not None:
                return fault, took
            took.append(ns)
        return None, took


def _that_count(took: Sequence[int], wanted: int) -> list[tuple[int, int]]:
    """Of one go's calls those that count, and how many calls ago each was: not the first of several, which waited for
    its runner to be awake."""
    first = 1 if len(took) > 1 else 0
    return [(len(took) - n, took[n]) for n in range(first, min(len(took), first + wanted))]


class _Taken:
    """The samples that there are now, so that those of the batch that follows can be taken back."""

    def __init__(self, rows: Iterable[Mapping[int, timing.LaunchTimes]], launch: Launch | None) -> None:
        every = [(index, times) for row in rows for index, times in row.items()]
        lists = [found for _, times in every for found in (times.calls_ns, times.null_ns)]
        self._marks = [(found, len(found)) for found in lists]
        self._launch = launch
        self._kept = {index: len(times.calls_ns) for index, times in reversed(every)}

    def take_back(self) -> None:
        """None of what came since counts."""
        for found, many in self._marks:
            del found[many:]
        if self._launch is not None:
            self._launch.take_back(self._kept)


@dataclass(kw_only=True)
class _Longest:
    """What the longest launch of a phase took: of the submission's time, and in all."""

    theirs_s: float = 0.0
    whole_s: float = 0.0

    @contextmanager
    def launch(self, allowance: Allowance) -> Iterator[None]:
        """One launch."""
        began, left_s = time.monotonic(), allowance.left_s
        yield
        self.theirs_s = max(self.theirs_s, left_s - allowance.left_s)
        self.whole_s = max(self.whole_s, time.monotonic() - began)


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
