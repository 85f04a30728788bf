"""The phases whose cases are checked and not timed: the public tests, and the hidden ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from kbslurm_eval.judge.call_checks import CallChecks
from kbslurm_eval.judge.interrupts import OutOfTime
from kbslurm_eval.judge.launch import Allowance, Launch
from kbslurm_eval.judge.launches import Launches
from kbslurm_eval.judge.reference import Case, ProblemTrouble
from kbslurm_eval.judge.replies import MESSAGE_CAP, Rejected, clean, status_of
from kbslurm_eval.judge.run_state import SECRET, RunState
from kbslurm_eval.shared import test_numbers
from kbslurm_eval.shared.wire import PhaseName, TestResult

ERRORS_TOLD = 8
_DICE = random.SystemRandom()


class CheckedPhase:
    """Every case once, in one launch; the first test's input a second time."""

    def __init__(self, run: RunState, launches: Launches, calls: CallChecks) -> None:
        self._run, self._launches, self._calls = run, launches, calls
        self._repeated = False

    def check(self, name: PhaseName, allowance: Allowance) -> Rejected | None:
        """All cases of this phase: the first fault in call order, or None."""
        manifest, secret = self._run.manifest, name in SECRET
        params = [*manifest.hidden, *manifest.tests] if secret else manifest.tests
        cases = [Case(index=n, params=p) for n, p in enumerate(params)]
        if not cases:
            if not secret:  # nothing to check, but the submission must load
                self._launches.end(name, self._launches.start_loaded(name, allowance))
            return None
        self._run.heartbeat.enter(name, len(cases))
        results: dict[int, TestResult] = {}
        faults: dict[int, Rejected] = {}
        order = _DICE.sample(cases, len(cases)) if secret else cases
        launch = None
        try:
            self._calls.verify(order[0], self._run.seed(name, order[0]))
            launch = self._launches.start_loaded(name, allowance)
            for case in order:
                launch.turn_to(case.index)
                fault = self._checked(name, case, launch)
                results[case.index] = self._result(name, case, fault)
                if fault is not None:
                    faults[case.index] = fault
                self._run.heartbeat.step()
        except ProblemTrouble as trouble:
            raise self._launches.to_blame(launch, trouble) from None
        except Rejected as fault:
            unseen = next((c for c in order if c.index not in results), None)
            faults[-1 if unseen is None else unseen.index] = fault
            if unseen is not None:
                results[unseen.index] = self._result(name, unseen, fault)
        except OutOfTime:
            self._calls.drop_held()
            raise
        finally:
            self._launches.end(name, launch)
            for case, late in self._calls.checked_late(name):
                if case.index not in faults:
                    faults[case.index] = late
                    results[case.index] = self._result(name, case, late)
            worst = next((faults[n] for n in (*(c.index for c in order), -1) if n in faults), None)
            if secret:
                self._run.results.tests.append(_one_for_all(worst))
            else:
                rest = {c.index: TestResult(phase=name, index=c.index, spec=c.spec, status="skipped") for c in cases}
                self._run.results.tests += [results.get(n, rest[n]) for n in sorted(rest)]
                if name == "test":
                    self._launches.note(errors_by_test([results[n] for n in sorted(results)]))
        return worst

    def _checked(self, name: PhaseName, case: Case, launch: Launch) -> Rejected | None:
        """One call of one case, judged. Returns a wrong answer or an exception; raises what ends the launch."""
        try:
            fault, _ = self._calls.one_call(name, case, self._run.seed(name, case), launch)
        except Rejected as ending:
            raise self._calls.timed_out_at(name, case, ending) from None
        if fault is None and name == "test" and not self._repeated:
            fault = self._checked_again(name, case, launch)
        return None if fault is None else self._calls.with_test(name, case, fault)

    def _checked_again(self, name: PhaseName, case: Case, launch: Launch) -> Rejected | None:
        """The first test's input again: if it is wrong now, the input isn't the reason, and staff are told."""
        self._repeated = True
        fault, _ = self._calls.one_call(name, case, self._run.seed(name, case), launch)
        if fault is not None:
            self._calls.note_changing(case, fault)
        return fault

    def _result(self, name: PhaseName, case: Case, fault: Rejected | None) -> TestResult:
        if fault is None:
            return TestResult(phase=name, index=case.index, spec=case.spec, status="pass")
        message = clean(fault.alone or fault.said, MESSAGE_CAP)
        return TestResult(phase=name, index=case.index, spec=case.spec, status=status_of(fault), message=message)


def errors_by_test(results: Sequence[TestResult]) -> str:
    """Which tests an exception in a call hit, as lines for the log, where its trace stands once."""
    hit: dict[str, list[int]] = {}
    for one in results:
        if one.status == "error" and one.message and not one.message.startswith("while "):
            hit.setdefault(one.message, []).append(one.index + 1)
    lines = [f"[{test_numbers.in_words(tests)}: {message[:200]}]" for message, tests in hit.items()]
    return "\n".join(lines[:ERRORS_TOLD])


def _one_for_all(worst: Rejected | None) -> TestResult:
    """For hidden cases, only whether all passed is reported."""
    passed = TestResult(phase="hidden", index=0, spec="hidden cases", status="pass")
    return passed if worst is None else replace(passed, status=status_of(worst), message=worst.bare_reason)
