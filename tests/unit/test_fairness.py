"""Virtual time per person, walked at random: it never goes back, and what one person does costs nobody else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kbslurm.domain.fairness import SERVICE_FROM, fair_at, service_fair_at

START = datetime(2026, 5, 1, tzinfo=UTC)
costs = st.floats(0, 3600)
weights = st.floats(0.1, 10)


class FairQueue(RuleBasedStateMachine):
    """People submit whenever they like; each remembers only their own last stamp."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.last: dict[int, datetime] = {}
        self.paid: dict[int, float] = {}
        self.first: dict[int, datetime] = {}

    @rule(seconds=st.integers(0, 1000))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(person=st.integers(1, 3), cost_s=costs, weight=weights)
    def submit(self, person: int, cost_s: float, weight: float) -> None:
        before = self.last.get(person)
        stamp = fair_at(self.now, before, cost_s=cost_s, weight=weight)
        assert stamp >= self.now
        if before is None:
            assert stamp == self.now
            self.first[person], self.paid[person] = stamp, 0.0
        else:
            assert stamp >= before + timedelta(seconds=cost_s / weight) - timedelta(microseconds=1)
            self.paid[person] += cost_s / weight
        self.last[person] = stamp

    @rule(person=st.integers(1, 3))
    def all_of_theirs_end(self, person: int) -> None:
        self.last.pop(person, None)

    @invariant()
    def nobody_is_put_back_further_than_their_own_work(self) -> None:
        for person, stamp in self.last.items():
            assert stamp <= self.now + timedelta(seconds=self.paid[person] + 1e-3)


TestFairQueue = FairQueue.TestCase


@given(
    moments=st.tuples(st.integers(0, 9999), st.integers(0, 9999)).map(sorted),
    last=st.none() | st.integers(0, 9999),
    cost_s=costs,
)
def test_it_is_monotone_in_now(moments: list[int], last: int | None, cost_s: float) -> None:
    before = None if last is None else START + timedelta(seconds=last)
    early, late = (fair_at(START + timedelta(seconds=s), before, cost_s=cost_s) for s in moments)
    assert early <= late


def test_who_weighs_more_pays_less() -> None:
    light, heavy = (fair_at(START, START, cost_s=60, weight=weight) for weight in (1.0, 2.0))
    assert (light - START, heavy - START) == (timedelta(seconds=60), timedelta(seconds=30))


@pytest.mark.parametrize(("cost_s", "weight"), [(-1, 1), (1, 0), (1, -2)])
def test_nonsense_is_refused(cost_s: float, weight: float) -> None:
    with pytest.raises(ValueError, match="weight must be positive"):
        fair_at(START, None, cost_s=cost_s, weight=weight)


@given(
    person_s=st.integers(0, 10**9),
    service_s=st.integers(0, 10**9),
    owners=st.none() | st.integers(0, 10**9),
    cost_s=costs,
)
def test_a_service_is_behind_everyone_and_fair_among_its_kind(
    person_s: int, service_s: int, owners: int | None, cost_s: float
) -> None:
    at = START + timedelta(seconds=service_s)
    last = None if owners is None else service_fair_at(START + timedelta(seconds=owners), None)
    stamp = service_fair_at(at, last, cost_s=cost_s)
    assert stamp >= SERVICE_FROM > fair_at(START + timedelta(seconds=person_s), None)
    assert stamp >= service_fair_at(at, None) and (last is None or stamp >= last)
