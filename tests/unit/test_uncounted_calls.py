"""What calls that don't count owe to those that do."""

from __future__ import annotations

from kbslurm_eval.judge.uncounted_calls import longer, share

US, MS = 1_000, 1_000_000


def test_who_works_ahead_in_calls_that_dont_count_pays_for_it() -> None:
    """Three tables of 5 ms for each two calls that count: 2 ms, or half as much again as a call takes, are free."""
    assert share([16 * MS] * 15, [1 * MS] * 30) == 7 * MS
    assert share([40 * MS] * 4, [100 * US] * 30) == round(38 * MS * 4 / 30)
    assert share([16 * MS] * 8 + [1 * MS] * 7, [1 * MS] * 30) == 7 * MS  # in as many as it takes


def test_cold_caches_and_a_busy_machine_cost_nothing() -> None:
    assert share([1_900 * US] * 15, [100 * US] * 30) == 0
    assert share([7 * MS] * 15, [5 * MS] * 30) == 0
    assert share([46 * US, 5_887 * US, 112_668 * US, 57 * US], [24 * US] * 30) == 0
    assert share([5 * MS] * 15, [60 * US] * 30) > 0
    assert share([5 * MS] * 15, [60 * US] * 30, longer([2 * MS] * 15, [60 * US] * 30)) == 0


def test_where_nothing_was_called_nothing_is_owed() -> None:
    assert share([], [1] * 30) == share([9 * MS], []) == share([], []) == 0
    assert longer([], [1]) == longer([1], []) == 0
