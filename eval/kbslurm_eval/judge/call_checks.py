"""One call of the submission, judged: made in a launch, and checked by the problem's own check."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kbslurm_eval.judge.interrupts import TooSlow, within
from kbslurm_eval.judge.launch import LATE_CAP, Launch
from kbslurm_eval.judge.reference import Case, Prepared, Reference
from kbslurm_eval.judge.replies import MESSAGE_CAP, Rejected, Reply, as_one_line, claimed, clean
from kbslurm_eval.judge.run_state import RunState
from kbslurm_eval.shared import layouts, time_limits
from kbslurm_eval.shared.runner_link import Status
from kbslurm_eval.shared.wire import PhaseName

if TYPE_CHECKING:
    from kbslurm_eval.judge.device_memory import Answered

NONDETERMINISTIC = "NONDETERMINISTIC"
HINTS_MOST = 3  # so many wrong answers are compared with the reference's for a hint
# A check may take so many times as long as for the reference's own answer, and so long besides; less is nobody's time.
CHECK_TIMES, CHECK_S = 10, 10.0
FREE_TIMES, FREE_S = 2, 0.1
HELD_CAP = 2 << 30  # of inputs and answers waiting to be checked when their runner has ended


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The output of one call of the submission, unchecked."""

    prepared: Prepared
    out: bytes | bytearray | memoryview
    layout: layouts.Layout
    there: Answered | None = None


@dataclass(kw_only=True)
class HeldAnswers:
    """Answers that are checked when their runner is gone, since the device belongs to it alone until then."""

    answers: list[Answer] = field(default_factory=list)
    size: int = 0

    def room(self, one: Answer) -> bool:
        """Whether there is room for this one."""
        return self.size + len(one.prepared.packed) + len(one.out) <= HELD_CAP

    def add(self, one: Answer) -> None:
        """Add it."""
        self.answers.append(one)
        self.size += len(one.prepared.packed) + len(one.out)

    def taken(self) -> list[Answer]:
        """Take all of them, in the order of their calls."""
        found, self.answers, self.size = self.answers, [], 0
        return found


class CallChecks:
    """Calls of one run. Where the device is the submission's alone, answers wait for their runner's end."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._held = HeldAnswers()
        self._hints = 0

    def verify(self, case: Case, seed: int | None) -> None:
        """The reference passes its own check on this case; ProblemTrouble otherwise."""
        prepared = self._run.reference.prepare(case, seed, exact=True)
        self.look_at_device(prepared)
        self._run.reference.verify(prepared)

    def look_at_device(self, prepared: Prepared) -> None:
        """Whether the device is needed at all."""
        if self._run.device is not None and isinstance(self._run.reference, Reference):
            self._run.device.look(prepared)

    def one_call(
        self,
        name: PhaseName,
        case: Case,
        seed: int | None,
        launch: Launch,
        *,
        claimed_ns: int = 0,
        copied: bool = False,
    ) -> tuple[Rejected | None, int]:
        """One call: its fault, if any, and how long it took. Raises what ends the launch. `claimed_ns`: how long the
        call before it took, which only said what its output is: it counts, or slow calls could be taken back. `copied`:
        its time ends with a copy of its answer, as in one go; what is taken off has one, too."""
        if not isinstance(self._run.reference, Reference):
            from kbslurm_eval.judge import ranks_launch

            assert isinstance(launch, ranks_launch.RanksLaunch)
            bounded = functools.partial(self._bounded, case, launch)
            fault, ns, checked = ranks_launch.one_call(self._run.reference, launch, case, seed, bounded)
            self._run.results.checked += checked
            self._run.results.called_ns += ns
            return fault, ns
        began = time.monotonic()
        prepared = self._run.reference.prepare(case, seed)
        if claimed_ns:
            launch.costs(time.monotonic() - began)
        if copied:
            prepared = replace(prepared, copied_size=_copied_in_null(prepared))
        declared = case.index, prepared.layout.text()
        is_granted, expected_size = declared in launch.granted, prepared.layout.size
        asked = prepared
        if is_granted:
            prepared = replace(prepared, layout=launch.granted[declared], places={})
        elif case.index in launch.forms:
            form = self._run.reference.in_that_form(*launch.forms[case.index], prepared)
            if form is not None:
                launch.claimed_bytes = max(launch.claimed_bytes, form.size - expected_size)
                prepared = replace(prepared, layout=form, places={})
        began = time.monotonic()
        launch.is_known_input = claimed_ns > 0
        try:
            reply = launch.call(prepared)
        finally:
            launch.is_known_input = False
        self._run.results.called_ns += reply.ns
        differs = reply.status in (Status.WRONG_SHAPE, Status.WRONG_TYPE)
        if differs and self._run.reference.layout_moved(asked):  # so what was granted in its place isn't right either
            again = None if seed is None else seed ^ 1  # a timed call never sees an input twice
            return self.one_call(name, case, again, launch, claimed_ns=claimed_ns, copied=copied)
        if differs and not claimed_ns:
            other = self._run.reference.granted(asked, reply.text)
            if other is not None:
                # with the same input, since the answer to another may be of another length; both calls' times count,
                # and all that comes between them, so whoever remembers it gains nothing
                launch.asked_twice += 1
                launch.granted[declared] = other
                launch.forms[case.index] = other, asked.layout
                launch.claimed_bytes = max(launch.claimed_bytes, other.size - expected_size)
                return self.one_call(name, case, seed, launch, claimed_ns=reply.ns, copied=copied)
        if reply.status != Status.OK:
            return claimed(reply), reply.ns
        answer = Answer(prepared=prepared, out=reply.out, layout=reply.layout or prepared.layout, there=reply.there)
        if self._run.device_alone and self._held.room(answer):
            self._held.add(answer)
            return None, reply.ns + claimed_ns
        fault = self.fault_of(name, answer, launch)
        if 0 < expected_size < prepared.layout.size:  # what the rest of it costs is its author's affair
            took_s = time.monotonic() - began - reply.ns / 1e9
            launch.costs(took_s * (1 - expected_size / prepared.layout.size))
        return fault, reply.ns + claimed_ns

    def in_one_go(
        self, name: PhaseName, case: Case, seeds: Sequence[int | None], launch: Launch
    ) -> tuple[Rejected | None, list[int]] | None:
        """Several calls in one go, each with its own data and its own check: the first fault, if any, and how long each
        took before that. None where they must be made one by one."""
        if not isinstance(self._run.reference, Reference) or case.index in launch.one_by_one:
            return None
        began = time.monotonic()
        prepared = [self._run.reference.prepare(case, seed) for seed in seeds]
        prepared_s = time.monotonic() - began
        asked, granted = prepared, launch.granted.get((case.index, prepared[0].layout.text()))
        if granted is not None:
            if len({one.layout.text() for one in prepared}) > 1:  # so what it is instead differs, too
                return None
            if granted.size > max(LATE_CAP, prepared[0].layout.size):
                launch.one_by_one.add(case.index)
                launch.costs(prepared_s)
                return None
            size = _copied_in_null(prepared[0])
            prepared = [replace(one, layout=granted, places={}, copied_size=size) for one in prepared]
        replies = launch.calls_in_one_go(prepared)
        if replies is None:
            return None
        if self._is_to_be_asked_alone(asked[len(replies) - 1], replies):
            # they are in nobody's time otherwise, and the calls that are made instead have other inputs
            launch.uncounted_ns.setdefault(case.index, []).extend(reply.ns for reply in replies)
            if granted is not None:  # it has had its layout; that these were made in vain is its author's affair
                launch.costs(prepared_s)
            return None
        took: list[int] = []
        for one, reply in zip(prepared, replies, strict=False):
            self._run.results.called_ns += reply.ns
            if reply.status != Status.OK:
                return claimed(reply), took
            answer = Answer(prepared=one, out=reply.out, layout=reply.layout or one.layout, there=reply.there)
            if (fault := self.fault_of(name, answer, launch)) is not None:
                return fault, took
            took.append(reply.ns)
        return None, took

    def _is_to_be_asked_alone(self, last: Prepared, replies: Sequence[Reply]) -> bool:
        """Whether the last of these answers has another layout and may have it. Not because its author says so once
        calls that count have been made, or whoever was unlucky in one of them could have all made again. `last`: as it
        was before anything was granted."""
        assert isinstance(self._run.reference, Reference)
        if replies[-1].status not in (Status.WRONG_SHAPE, Status.WRONG_TYPE):
            return False
        if self._run.reference.layout_moved(last):
            return True
        return len(replies) == 1 and self._run.reference.granted(last, replies[-1].text) is not None

    def fault_of(self, name: PhaseName, answer: Answer, launch: Launch | None = None) -> Rejected | None:
        """Whether this answer is right, by the problem's own check. `launch`: whose it is, if that is still there."""
        try:
            with self._bounded(answer.prepared.case, launch):
                if self._beside_others:  # whose answer it is can't be told from the mark
                    return self._fault_of(name, answer)
                with self._run.check_mark.up():
                    return self._fault_of(name, answer)
        except Rejected as fault:
            return fault

    @property
    def _beside_others(self) -> bool:
        return bool(time_limits.rivals_of(self._run.manifest.config))

    @contextmanager
    def _bounded(self, case: Case, launch: Launch | None) -> Iterator[None]:
        """A check whose time an answer may decide: Rejected where it takes far longer than for the reference's own
        answer. In a final, where it would end everybody's, what it drags is its author's time as well."""
        usual_s, began = self._run.reference.usual_check_s(case), time.monotonic()
        if math.isinf(usual_s):
            yield
            return
        try:
            with within(most_s := CHECK_TIMES * usual_s + CHECK_S):
                yield
        except TooSlow:
            told = f"checking an answer took longer than {most_s:.0f} s; the reference's own takes {usual_s:.2g} s"
            raise Rejected("timeout", told, "checking an answer took too long") from None
        if launch is not None and self._beside_others:
            launch.drags(max(0.0, time.monotonic() - began - FREE_TIMES * usual_s - FREE_S))

    def _fault_of(self, name: PhaseName, answer: Answer) -> Rejected | None:
        assert isinstance(self._run.reference, Reference)
        prepared, case = answer.prepared, answer.prepared.case
        try:
            output = self._run.reference.read(answer.layout, answer.out, answer.there)
        except layouts.Misfit as misfit:
            return Rejected("wrong", f"an answer is wrong: {misfit}", "an answer is wrong")
        good, said = self._run.reference.check(prepared, output, last=name != "test")
        said = as_one_line(said[: 4 * MESSAGE_CAP])  # it may quote the answer
        self._run.results.checked += 1
        if good:
            facts = self._run.results.facts
            # of the first difference; where it can't be told, asking again takes the judge as long for each test
            if name == "test" and facts.get("tolerance", {}).get("times", 0) == 0:
                facts["tolerance"] = {"case": case.spec, "times": self._run.reference.margin(prepared, output)}
            return None
        if name == "test" and self._hints < HINTS_MOST:
            self._hints += 1
            said = as_one_line(self._run.reference.explained(prepared, output, said))
        return Rejected("wrong", f"an answer is wrong: {said}" if said else "an answer is wrong", "an answer is wrong")

    def checked_late(self, name: PhaseName) -> Iterator[tuple[Case, Rejected]]:
        """What had to wait for the runner's end, checked now that it is gone: what is wrong, in the order of calls."""
        seen: set[int] = set()
        for answer in self._held.taken():
            case = answer.prepared.case
            fault = self.fault_of(name, answer)
            if fault is not None:
                if name == "test" and case.index in seen:
                    self.note_changing(case, fault)
                yield case, self.with_test(name, case, fault)
            seen.add(case.index)

    def with_test(self, name: PhaseName, case: Case, fault: Rejected) -> Rejected:
        """The same, told with the test that it came of where there are several."""
        if len(self._run.manifest.tests) + len(self._run.manifest.hidden) > 1 and name == "test":
            fault.alone = fault.said
            fault.said = f"test {case.index + 1} of {len(self._run.manifest.tests)} ({case.spec}): {fault.said}"
        return fault

    def timed_out_at(self, name: PhaseName, case: Case, fault: Rejected) -> Rejected:
        """The same, told with the case where it is a time limit that was reached and the case is public."""
        if fault.verdict == "timeout" and name == "test":
            return self.with_test(name, case, fault)
        if fault.verdict == "timeout" and name == "benchmark":
            fault.said = (
                f"benchmark {case.index + 1} of {len(self._run.manifest.benchmarks)} ({case.spec}): {fault.said}"
            )
        return fault

    def note_changing(self, case: Case, fault: Rejected) -> None:
        """The same input was answered correctly before: staff are told."""
        if fault.verdict == "wrong":
            self._run.results.flags.append(NONDETERMINISTIC)
            said = clean(fault.said, MESSAGE_CAP)
            evidence = self._run.results.facts.setdefault("evidence", {})
            evidence[NONDETERMINISTIC] = f"{case.spec}: right at first, and then {said}"

    def drop_held(self) -> None:
        """There is no time to check the waiting ones."""
        self._held.taken()


def _copied_in_null(prepared: Prepared) -> int:
    """How much of an answer a null call of this case copies when it is made in one go."""
    return max(prepared.layout.size, prepared.payload().room)
