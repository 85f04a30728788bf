"""The life of a run, walked at random against the table of moves and the class of each ending."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kbslurm.domain.run import (
    INFRASTRUCTURE_ATTEMPTS,
    JOB_PREFIX,
    MOVES,
    OPEN_RUNS,
    OWN_FAULT,
    Ending,
    RunState,
    new_job_name,
    tries_owed,
)
from kbslurm_eval.shared.wire import VerdictName

NOT_TRIED_AGAIN = (Ending.REPORTED, Ending.REFUSED, Ending.MISCONFIGURED)
OTHERS_FAULT = [e for e in Ending if e not in (*OWN_FAULT, *NOT_TRIED_AGAIN, Ending.WITHDRAWN)]


class RunLife(RuleBasedStateMachine):
    """What the rooms may do to a run; every step must stand in the table, and an end is for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.state = RunState.QUEUED
        self.attempts = 0
        self.verdicts = 0
        self.own_failures = 0

    @initialize()
    def accepted(self) -> None:
        assert self.state in OPEN_RUNS

    def _go(self, to: RunState) -> None:
        assert (self.state, to) in MOVES, f"{self.state} → {to}"
        self.state = to

    @precondition(lambda self: self.state is RunState.QUEUED)
    @rule()
    def claim(self) -> None:
        self.attempts += 1
        self._go(RunState.LAUNCHING)

    @precondition(lambda self: self.state is RunState.LAUNCHING)
    @rule()
    def seen_running(self) -> None:
        self._go(RunState.RUNNING)

    @precondition(lambda self: self.state in (RunState.LAUNCHING, RunState.RUNNING))
    @rule()
    def report(self) -> None:
        self.verdicts += 1
        self._go(RunState.SCORED)

    @precondition(lambda self: self.state in (RunState.LAUNCHING, RunState.RUNNING))
    @rule(ending=st.sampled_from([ending for ending in Ending if ending is not Ending.WITHDRAWN]))
    def end_without_report(self, ending: Ending) -> None:
        if self.attempts < tries_owed(ending):
            assert ending not in OWN_FAULT
            self._go(RunState.QUEUED)
        elif ending in OWN_FAULT:
            self.verdicts += 1
            self._go(RunState.SCORED)
        else:
            self.verdicts += 1
            self._go(RunState.FAILED)

    @precondition(lambda self: self.state is RunState.LAUNCHING)
    @rule()
    def withdraw(self) -> None:
        """What hadn't begun goes elsewhere, and is none of the three."""
        assert self.attempts < tries_owed(Ending.WITHDRAWN)
        self.attempts -= 1
        self._go(RunState.QUEUED)

    @precondition(lambda self: self.state in OPEN_RUNS)
    @rule()
    def cancel(self) -> None:
        self._go(RunState.CANCELLED)

    @precondition(lambda self: self.state not in OPEN_RUNS)
    @rule(to=st.sampled_from(list(RunState)))
    def a_late_report_moves_nothing(self, to: RunState) -> None:
        assert (self.state, to) not in MOVES

    @invariant()
    def one_verdict_and_no_more_than_three_attempts(self) -> None:
        assert self.verdicts == (self.state in (RunState.SCORED, RunState.FAILED))
        assert self.attempts <= INFRASTRUCTURE_ATTEMPTS


TestRunLife = RunLife.TestCase


@pytest.mark.parametrize("ending", OTHERS_FAULT)
def test_what_is_nobodys_fault_is_tried_three_times(ending: Ending) -> None:
    assert tries_owed(ending) == INFRASTRUCTURE_ATTEMPTS == 3


@pytest.mark.parametrize("ending", [*OWN_FAULT, *NOT_TRIED_AGAIN])
def test_ones_own_failure_and_a_refusal_are_never_tried_again(ending: Ending) -> None:
    assert tries_owed(ending) == 0


def test_own_faults_have_verdicts_of_the_vocabulary() -> None:
    assert set(OWN_FAULT.values()) <= set(get_args(VerdictName)) - {"infrastructure", "passed"}


def test_the_only_edges_back_are_new_attempts() -> None:
    assert {move for move in MOVES if move[1] is RunState.QUEUED} == {
        (RunState.LAUNCHING, RunState.QUEUED),
        (RunState.RUNNING, RunState.QUEUED),
    }


def test_job_names_are_lower_case_short_and_all_different() -> None:
    names = {new_job_name() for _ in range(1000)}
    assert len(names) == 1000
    assert all(name.startswith(JOB_PREFIX) and name == name.lower() and len(name) == 29 for name in names)
