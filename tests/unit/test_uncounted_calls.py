"""What calls that don't count owe to those that do."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from kbslurm_eval.judge.uncounted_calls import SEEN_NS, Debts, Share, beside, longer, share
from kbslurm_eval.shared.wire import CallTimes, LaunchSamples

US, MS = 1_000, 1_000_000


def test_who_works_ahead_in_calls_that_dont_count_pays_for_it() -> None:
    """Three tables of 5 ms for each two calls that count: 2 ms, or half as much again as a call takes, are free."""
    assert share([16 * MS] * 15, [1 * MS] * 30).owed == 7 * MS
    assert share([40 * MS] * 4, [100 * US] * 30).owed == pytest.approx(38 * MS * 4 / 30)
    assert share([212 * MS] + [2 * MS] * 14, [1 * MS] * 30).owed == 7 * MS, "in one of them"


def test_null_calls_are_no_place_to_work_either() -> None:
    assert share([], [1 * MS] * 32, nulls=[66 * MS] + [2 * MS] * 3).owed == pytest.approx(2 * MS)
    found = share([], [1 * MS] * 32, nulls=[2 * MS] * 4)
    assert found.owed == 0 and found.seen == pytest.approx((8 * MS - 4 * SEEN_NS) / 32)


def test_cold_caches_and_a_busy_baseline_cost_nothing() -> None:
    assert share([1_900 * US] * 15, [100 * US] * 30).owed == 0
    assert share([7 * MS] * 15, [5 * MS] * 30).owed == 0
    assert share([5 * MS] * 15, [60 * US] * 30).owed > 0
    assert share([5 * MS] * 15, [60 * US] * 30, longer([2 * MS] * 15, [60 * US] * 30)).owed == 0


def test_what_is_excused_is_seen_where_it_is_more_than_caches() -> None:
    """A millisecond for each call, or a quarter of one of 10 ms, was free beside what everybody may do in a warm-up."""
    assert share([2 * MS] * 15, [100 * US] * 30) == Share(owed=0, seen=800 * US)
    assert share([15 * MS] * 15, [10 * MS] * 30) == Share(owed=0, seen=2_350 * US)
    assert share([390 * US] * 15, [100 * US] * 30) == Share()
    busy = longer([3 * MS] * 15, [100 * US] * 30)
    assert share([2 * MS] * 15, [100 * US] * 30, busy) == Share(), "so was the baseline"


def test_what_is_excused_is_nothing_that_a_submission_can_leave_behind() -> None:
    counted, slow, usual = [100 * US] * 30, 3 * MS, 150 * US
    assert beside([slow, usual] * 8, [usual] * 8, counted) == 50 * US, "after the submission's calls only"
    assert beside([slow] * 16, [slow] * 8, counted) == 2_900 * US, "a busy machine"
    assert beside([usual, 30 * MS] * 8, [30 * MS] * 8, counted) == longer([usual, 30 * MS] * 8, counted)
    assert beside([slow] * 16, [], counted) == 2_900 * US, "all come after somebody else's"


def test_what_takes_long_for_some_inputs_owes_nothing_for_them() -> None:
    """A search that stops early, say: calls of both kinds take 0.2 ms for most inputs, and 20 ms for a third."""
    counted, uncounted = [200 * US, 200 * US, 20 * MS] * 10, [200 * US, 20 * MS, 200 * US] * 5
    assert share(uncounted, counted) == Share()
    assert share([20 * MS] * 15, counted).owed > 4 * MS, "not so if all that don't count are long"


def test_where_the_baseline_makes_such_calls_too_all_that_they_take_is_seen() -> None:
    """A submission that spares itself something in some of its calls has their mean."""
    found = share([240 * US] * 30, [140 * US] * 30, beside_each=50 * US)
    assert found == Share(owed=0, seen=100 * US, beside=50 * US)
    assert share([140 * US] * 15, [140 * US] * 30, beside_each=0.0) == Share()
    row = _launch(0, calls=4)
    row = dataclasses.replace(row, baseline=CallTimes(calls_ns=[1000, 1200, 1100], trusted_null_ns=[1]))
    debts = Debts()
    debts.add(0, 0, 0, Share(owed=0, seen=10, beside=7))
    debts.charge("ranked", [row])
    assert row.own.calls_ns == [140, 100, 100, 100]
    assert row.baseline is not None and row.baseline.calls_ns == [1000, 1221, 1100]


def test_a_busy_machine_in_some_launches_costs_nothing() -> None:
    """As seen on one: four calls of 46 µs, 5.9, 112.7 ms and 57 µs in one launch."""
    busy = share([46 * US, 5_887 * US, 112_668 * US, 57 * US], [24 * US] * 30)
    assert busy.owed > MS
    found = _charged([busy, 0, busy, 0, 0], calls=3)
    longest = 100 + round(3 * busy.seen)
    assert found == [[longest, 100, 100], [100] * 3, [longest, 100, 100], [100] * 3, [100] * 3]


def test_what_most_launches_owe_is_in_each_of_their_calls() -> None:
    assert _charged([7, 5, 0, 9, 5]) == [[107], [105], [105], [109], [105]]
    assert _charged([7, 5], calls=2) == [[109, 105], [105, 105]], "and what is beyond that in one launch's longest"
    assert _charged([7]) == [[107]]


def test_others_debts_and_other_phases_are_nobody_elses() -> None:
    debts = Debts()
    debts.add(1, 0, 0, Share(owed=7, seen=7))
    rows = [_launch(0), _launch(0, rival=1), _launch(0, index=1, rival=1)]
    assert not debts.charge("ranked", rows)
    assert [one.own.calls_ns for one in rows] == [[100], [107], [100]]
    debts.add(0, 0, 0, Share(owed=3, seen=3))
    assert not debts.charge("benchmark", rows)
    assert debts.charge("ranked", rows[:1])
    assert rows[0].own.calls_ns == [103]


def test_a_launch_without_calls_of_a_case_owes_nothing_for_it() -> None:
    debts = Debts()
    debts.add(0, 0, 0, Share())
    debts.add(0, 0, 2, Share(owed=5, seen=8))
    debts.add(0, 0, 1, Share())
    rows = [_launch(number) for number in range(4)]
    assert not debts.charge("ranked", rows)
    assert [one.own.calls_ns for one in rows] == [[100], [100], [108], [100]]


def _launch(number: int, *, index: int = 0, rival: int = 0, calls: int = 1) -> LaunchSamples:
    own = CallTimes(calls_ns=[100] * calls, trusted_null_ns=[1])
    return LaunchSamples(phase="ranked", index=index, launch=number, rival=rival, own=own)


def _charged(owed: Sequence[float | Share], *, calls: int = 1) -> list[list[int]]:
    debts, rows = Debts(), [_launch(number, calls=calls) for number in range(len(owed))]
    for number, one in enumerate(owed):
        debts.add(0, 0, number, one if isinstance(one, Share) else Share(owed=one, seen=one))
    debts.charge("ranked", rows)
    return [one.own.calls_ns for one in rows]


def test_where_nothing_was_called_nothing_is_owed() -> None:
    assert share([], [1] * 30) == share([9 * MS], []) == share([], []) == Share()
    assert longer([], [1]) == longer([1], []) == 0
