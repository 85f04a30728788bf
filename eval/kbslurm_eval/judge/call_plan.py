"""How many launches and calls the timed phases have: decided from the reference's pace, before the submission is
seen."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbslurm_eval.judge import machine
from kbslurm_eval.judge.call_checks import CallChecks
from kbslurm_eval.judge.launch import LATE_CAP
from kbslurm_eval.judge.reference import Case, Prepared, Reference
from kbslurm_eval.judge.run_state import RunState
from kbslurm_eval.shared import time_limits, timing, values
from kbslurm_eval.shared.wire import (
    FINAL_SAMPLES_CAP,
    PHASES,
    SAMPLES_CAP,
    Manifest,
    PhaseName,
    counted_operation,
)

WARM_UPS = 2
TIMED_SHARE = 0.5  # of a run's whole time may go into the calls of timed phases, at the reference's pace
COPIED_PER_S = 1e9  # bytes that the judge packs, writes, reads and compares, as slow as that may be
LEAST_RANKED = 2  # launches: one alone gives no interval
GROUP = 9  # so many calls are made in one go where the reference's answer takes less than this, on a device or not
SHORT_S, SHORT_ON_CPU_S = 100e-6, 50e-3  # a fast submission may take a thousandth of a plain reference's time
ALONE = ((20e-3, 6), (0.1, 3), (1.0, 2), (math.inf, 1))  # where one takes less than so long, so many
CACHES_SHOW_S = 20e-3  # filling a core's cache again takes a tenth of a millisecond
LOOKS_S = 0.2  # so long a reference that may be short is looked at: a busy machine's hiccups last milliseconds
NOT_A_HICCUP_S = 1.0
PREPARED_SOON_S = 5e-3  # null calls with an input of their own would take as long as calls do where that takes longer
AHEAD_CAP = 256 << 20  # the runner's way to a call of more, through Python in cold caches, takes a hundredth of it
AHEAD_TEXT_CAP = 16_384  # of a large input, or one with numbers: making some 400 arrays takes less than is free
GROUPED_CAP = 16 << 20  # of all of a call on a device; on a processor what is written late, and answers as large
ONE_CORE = "this job has one processor core, and the judge would take it from the submission while it waits for it"


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long the trusted reference's answer to one case takes, and all else that each call of it needs."""

    answer_s: float
    around_s: float
    prepared_s: float  # of that, until an input is packed
    pattern: Prepared
    group: int = 1  # so many calls are made in one go, and the first of them doesn't count
    uncounted: float = 0.0  # so many more for each that counts, where somebody else's calls come in between
    apart: bool = False  # single numbers of the inputs stand among the arrays

    def goes(self, calls: int) -> int:
        """How often a runner is let go, so that so many calls count after the warm-ups."""
        return calls + WARM_UPS if self.group == 1 else 1 + math.ceil(calls / (self.group - 1))

    def made(self, calls: int) -> int:
        """How many calls are made for that."""
        if self.group == 1:
            return WARM_UPS + math.ceil(calls * (1 + self.uncounted))
        return WARM_UPS + calls + self.goes(calls) - 1


LAYOUTS, LAYOUTS_WITHIN_S = 2, 0.2
COUNTED = ("moved_bytes", "counted_flops")  # facts by phase and case


class CallPlan:
    """The plan of one run, once the pace of its cases is known."""

    def __init__(self, run: RunState, calls: CallChecks) -> None:
        self._run, self._calls = run, calls
        self._paces: dict[int, Pace] = {}

    def learn(self, name: PhaseName, case: Case) -> Case:
        """See how long the problem's own code takes for this case, if that isn't known yet: the case as it is timed."""
        if case.index not in self._paces:
            self._paces[case.index] = self._pace_of(name, case)
        for which in COUNTED:  # the ranked phase times what the benchmark phase has: its cases move and compute as much
            by_phase = self._run.results.facts.get(which, {})
            known = [counts[str(case.index)] for counts in by_phase.values() if str(case.index) in counts]
            if known:
                by_phase.setdefault(name, {})[str(case.index)] = known[0]
        return replace(case, apart=self._paces[case.index].apart)

    def pattern(self, index: int) -> Prepared:
        """The input for this case's null calls."""
        return self._paces[index].pattern

    def group(self, index: int) -> int:
        """How many calls of this case are made in one go."""
        return self._paces[index].group

    def is_short_alone(self, index: int) -> bool:
        """Whether its calls are made one by one, one takes so little time that cold caches show in it, and everybody
        may warm them."""
        return self._paces[index].uncounted > 0

    def is_soon_prepared(self, index: int) -> bool:
        """Whether making and packing one more of its inputs takes hardly any time, or what is timed hardly any, too."""
        pace = self._paces[index]
        return min(pace.prepared_s, pace.answer_s) < PREPARED_SOON_S

    def alone(self, index: int) -> tuple[int, int]:
        """How many calls the baseline makes before a launch has the submission: those that don't count, and those that
        do."""
        each_s = self._paces[index].answer_s + self._paces[index].around_s
        many = next(many for below_s, many in ALONE if each_s < below_s)
        return self.warm_ups(index) if each_s < CACHES_SHOW_S else 1, many

    def warm_ups(self, index: int) -> int:
        """How many of its goes have no call that counts."""
        return WARM_UPS if self.group(index) == 1 else 1

    def counted(self, index: int, calls: int) -> int:
        """How many have some, for so many of these."""
        return self.goes(index, calls) - self.warm_ups(index)

    def next_go(self, index: int, wanted: int) -> int:
        """How many calls the next go has, if so many are still wanted: one more than count, or only the warm-ups."""
        group = self.group(index)
        return group if group == 1 else min(group, wanted + 1) if wanted else WARM_UPS

    def goes(self, index: int, calls: int) -> int:
        """How often a runner is let go for this case, so that so many calls count after the warm-ups."""
        return self._paces[index].goes(calls)

    def _pace_of(self, name: PhaseName, case: Case) -> Pace:
        """How long the problem's own code takes for one call of this case, and the input for its null calls."""
        reference = self._run.reference
        before = replace(reference.spent)
        prepared = reference.prepare(case, self._run.seed(name, case, "pace"), exact=True)
        self._calls.look_at_device(prepared)
        counted = self._run.results.facts.setdefault("moved_bytes", {}).setdefault(name, {})
        counted[str(case.index)] = prepared.array_bytes
        if (operation := counted_operation(self._run.manifest.config.get("flops"))) and isinstance(prepared, Prepared):
            flops = self._run.results.facts.setdefault("counted_flops", {}).setdefault(name, {})
            flops[str(case.index)] = prepared.operations(operation)
        reference.verify(prepared)
        spent = reference.spent.since(before)
        answer_s = self._answered_s(prepared)
        looks = LAYOUTS if isinstance(reference, Reference) and answer_s < LAYOUTS_WITHIN_S else 0
        texts = []
        for number in range(looks):  # does an answer's length follow from seeds?
            other = reference.prepare(case, self._run.seed(name, case, "pace", "layout", number), exact=True)
            texts.append(values.text(other.packed))
        ahead = self._is_steady(name, case, prepared, texts)
        apart = None if ahead else self._with_numbers_apart(name, case, prepared, texts)
        ahead, pattern = ahead or apart is not None, apart or prepared
        group = self._group(prepared, answer_s, ahead=ahead)
        if isinstance(reference, Reference):
            self._run.results.facts.setdefault("calls_in_one_go", {}).setdefault(name, {})[str(case.index)] = group
        return Pace(
            answer_s=answer_s,
            group=group,
            uncounted=self._uncounted() if group == 1 and ahead and answer_s < CACHES_SHOW_S else 0.0,
            around_s=spent.generation_s + spent.checks_s + (len(prepared.packed) + prepared.layout.size) / COPIED_PER_S,
            prepared_s=spent.generation_s + len(prepared.packed) / COPIED_PER_S,
            pattern=replace(pattern.hollow(), ahead=ahead),
            apart=apart is not None,
        )

    def _uncounted(self) -> float:
        """How many short calls of one kernel don't count, for each that does: they come before those that follow
        somebody else's, which is every one in a final, and every second beside a baseline."""
        config = self._run.manifest.config
        if time_limits.rivals_of(config):
            return 1.0
        return 0.5 if isinstance(config.get("baseline"), str) else 0.0

    def _answered_s(self, prepared: Prepared) -> float:
        """How long the reference's answer takes, with all that it leaves to the device."""
        device = self._run.device
        if device is not None:
            device.finish()
        began = time.perf_counter()
        self._run.reference.answer_again(prepared)
        if device is not None:
            device.finish()
        return time.perf_counter() - began

    def _is_short(self, prepared: Prepared, answer_s: float, short_s: float) -> bool:
        """Whether the reference's answer takes hardly any time. Several looks, so that a hiccup doesn't decide; few at
        one that isn't near it."""
        least_s, looks, until = answer_s, 1, time.perf_counter() + LOOKS_S
        while short_s <= least_s < NOT_A_HICCUP_S and (
            looks < 3 or (least_s < 20 * short_s and time.perf_counter() < until)
        ):
            least_s, looks = min(least_s, self._answered_s(prepared)), looks + 1
        return least_s < short_s

    def _group(self, prepared: Prepared, answer_s: float, *, ahead: bool) -> int:
        """How many short calls of a case are made in one go: the runner needn't be stopped in between, since nobody
        learns an input before the answer to the one before has been copied. Not where caches are flushed, which must be
        done while everything is stopped. In a final, whose scores stand beside those of other runs, they are, too."""
        reference, device = self._run.reference, self._run.device
        if not isinstance(reference, Reference) or not reference.answers:  # without an answer there is no pace
            return 1
        if device is not None and device.needed:
            size = len(prepared.packed) + prepared.away + prepared.layout.size
            fits, short_s = device.shares and not device.cold and size <= GROUPED_CAP, SHORT_S
        else:
            fits = ahead and max(len(prepared.packed), prepared.layout.size) <= LATE_CAP
            short_s = SHORT_ON_CPU_S
        if not fits or not self._is_short(prepared, answer_s, short_s):
            return 1
        if machine.cores() < 2:
            self._run.results.facts["calls_one_by_one"] = ONE_CORE
            return 1
        return GROUP

    def _is_steady(self, name: PhaseName, case: Case, prepared: Prepared, texts: list[bytes]) -> bool:
        """Whether seeds change nothing of this input but what its arrays contain, as far as some of them show. `texts`:
        those of some, to which one is added."""
        reference = self._run.reference
        if not isinstance(reference, Reference):
            return self._are_steady(name, case, prepared)
        text = values.text(prepared.packed)
        if len(prepared.packed) > AHEAD_CAP or (len(prepared.packed) > LATE_CAP and len(text) > AHEAD_TEXT_CAP):
            return False
        texts.append(reference.text(case, self._run.seed(name, case, "pace", "another")))
        return self._is_arrays(json.loads(text)) and set(texts) == {text}

    def _with_numbers_apart(
        self, name: PhaseName, case: Case, prepared: Prepared, texts: Sequence[bytes]
    ) -> Prepared | None:
        """An input of this case whose single numbers stand among its arrays, if that makes it as steady; None if not,
        or if its numbers change how large an answer is."""
        reference, device = self._run.reference, self._run.device
        if not isinstance(reference, Reference) or not texts or (device is not None and device.needed):
            return None
        text = values.text(prepared.packed)
        if len(text) > AHEAD_TEXT_CAP:
            return None
        tree = values.numbers_apart(json.loads(text))
        if not self._is_arrays(tree) or any(values.numbers_apart(json.loads(other)) != tree for other in texts):
            return None
        seeds = [self._run.seed(name, case, "pace", "another", number) for number in range(len(texts))]
        found = [reference.prepare(replace(case, apart=True), seed, exact=True) for seed in seeds]
        return found[0] if all(one.layout == prepared.layout for one in found) else None

    def _is_arrays(self, tree: Any) -> bool:
        device = self._run.device
        native, single = self._run.manifest.lang == "cu", device is None or not device.needed
        return values.is_arrays(tree, native=native, single=single)

    def _are_steady(self, name: PhaseName, case: Case, prepared: Prepared) -> bool:
        """The same for the inputs of all ranks."""
        from kbslurm_eval.judge.rank_reference import PreparedRanks

        assert isinstance(prepared, PreparedRanks)
        if sum(len(part.packed) for part in prepared.parts) > LATE_CAP:
            return False
        other = self._run.reference.prepare(case, self._run.seed(name, case, "pace", "another"))
        assert isinstance(other, PreparedRanks)
        pairs = zip(prepared.parts, other.parts, strict=True)
        heads = [(values.head(one.packed), values.head(another.packed)) for one, another in pairs]
        return all(mine == theirs and values.is_arrays(values.tree(mine)) for mine, theirs in heads)

    def calls(self, index: int) -> int:
        """How many calls of this case per launch: fixed by the budget and the trusted reference's own pace."""
        pace = self._paces[index]
        manifest = self._run.manifest
        budget = manifest.budget
        most = most_calls(manifest)
        each_s = (pace.answer_s + pace.around_s) * pace.made(most) / (most + WARM_UPS)
        return timing.budgeted_calls(
            calls=budget.calls,
            max_calls=most,
            target_s=budget.target_s,
            reference_s=pace.answer_s,
            share_s=max(0.0, self._share_s() - WARM_UPS * each_s),
            whole_s=each_s,
        )

    def _share_s(self) -> float:
        """How much of the run's whole time one case may take in one launch of a timed phase, warm-ups included."""
        slots = sum(self.launches(name) * len(self._timed(name)) * self._parties(name) for name in self._timed_phases())
        return self._timed_s / max(1, slots)

    @property
    def _timed_s(self) -> float:
        """How much of the run's whole time may go into calls of timed phases."""
        manifest = self._run.manifest
        return TIMED_SHARE * min(manifest.limits.total_s, time_limits.phases_s(manifest.limits, manifest.mode))

    def _timed_phases(self) -> list[PhaseName]:
        return [name for name in PHASES[self._run.manifest.mode] if name in ("benchmark", "ranked")]

    def _timed(self, name: PhaseName) -> range:
        manifest = self._run.manifest
        return timing.measured_cases(len(manifest.benchmarks), name, manifest.ranking_by)

    def _parties(self, name: PhaseName) -> int:
        """How many make each call of this phase: the submission, the baseline, and a final's rivals."""
        config = self._run.manifest.config
        rivals = len(time_limits.rivals_of(config)) if name == "ranked" else 0
        return 1 + isinstance(config.get("baseline"), str) + rivals

    def declared(self, name: PhaseName) -> int:
        """How many launches this phase has if there is time for them."""
        launches = self._run.manifest.budget.launches
        return launches if name == "ranked" or self._run.manifest.mode != "leaderboard" else min(2, launches)

    def launches(self, name: PhaseName) -> int:
        """How many launches this phase has: as declared, or as many as there is time for the fewest calls of."""
        names = self._timed_phases()
        wanted = [
            Wanted(
                launches=self.declared(each),
                least=min(LEAST_RANKED if each == names[-1] else 1, self.declared(each)),
                each_s=self._parties(each)
                * sum(
                    pace.made(min(timing.LEAST_CALLS, self._run.manifest.budget.calls))
                    * (pace.answer_s + pace.around_s)
                    for pace in map(self._paces.__getitem__, self._timed(each))
                ),
            )
            for each in names
        ]
        return fitting(wanted, self._timed_s)[names.index(name)]


def most_calls(manifest: Manifest) -> int:
    """How many calls of each case a launch has at most. What can't be archived isn't measured: the service computes
    every figure again from the samples, of which a finalist's have the baseline's beside them each time."""
    budget, rivals = manifest.budget, len(time_limits.rivals_of(manifest.config))
    rows = 2 * 2 * (1 + rivals) * max(budget.launches, budget.most_launches) * len(manifest.benchmarks)
    return max(1, min(budget.max_calls, (FINAL_SAMPLES_CAP if rivals else SAMPLES_CAP) // rows))


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The launches that one phase should have, and how long each of them takes at least."""

    launches: int
    least: int
    each_s: float


def fitting(phases: Sequence[Wanted], seconds: float) -> list[int]:
    """How many of each phase's launches fit into this time, all together; whoever has most gives up one first."""
    counts = [phase.launches for phase in phases]
    while sum(count * phase.each_s for count, phase in zip(counts, phases, strict=True)) > seconds:
        spare = [n for n, phase in enumerate(phases) if counts[n] > phase.least]
        if not spare:
            break
        counts[max(spare, key=counts.__getitem__)] -= 1
    return counts
