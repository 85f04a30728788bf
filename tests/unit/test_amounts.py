"""Amounts as people read them."""

from __future__ import annotations

import pytest

from kbslurm.api.pages.rendering import took
from kbslurm.domain.amounts import score, seconds, speed_up


@pytest.mark.parametrize(
    ("told", "want"),
    [
        ((7.2e-3, 6.8e-3, 7.6e-3), "7.20 ms +0.40 −0.40"),
        ((10e-3, 8e-3, 12.3e-3), "10.0 ms +2.3 −2.0"),
        ((0.5, 0.49, 0.51), "500 ms +10 −10"),
        ((0.5, None, None), "500 ms"),
        ((0.5, 0.5, 0.5), "500 ms"),
        ((None, None, None), "–"),
    ],
)
def test_an_interval_has_both_its_sides(told: tuple[float | None, float | None, float | None], want: str) -> None:
    assert score(*told) == want and "±" not in score(*told)


@pytest.mark.parametrize(
    ("told", "spread"),
    [
        ((6e-3, 4.8e-3, 8.4e-3), "6.00 ms, {}: spread 40 %"),
        ((10e-3, 4e-3, 12e-3), "10.0 ms, {}: spread 60 %"),
        ((6e-3, 1e-9, 158.355), "6.00 ms, {}: spread over 1000 %"),
        ((8e-6, 8e-6, 10e-6), "8.00 µs, {}: spread 25 %"),
    ],
)
def test_a_noisy_interval_is_told_by_its_spread(told: tuple[float, float, float], spread: str) -> None:
    assert score(*told) == spread.format("too noisy to rank")
    assert score(*told, ranked=True) == spread.format("noisy"), "on a board it has a place"


@pytest.mark.parametrize(
    ("now_s", "other_s", "want"),
    [
        (0.5, 1.0, "2× faster than own best"),
        (1.0, 0.5, "2× slower than own best"),
        (9.12, 1.0, "9.12× slower than own best"),
        (0.94, 1.0, "1.06× faster than own best"),
        (1.0, 1.0, "as fast as own best"),
        (1.0, 1.001, "as fast as own best"),
        (1.0, 0.0, "can't be compared with own best"),
    ],
)
def test_less_time_is_faster(now_s: float, other_s: float, want: str) -> None:
    assert speed_up(now_s, other_s, "own best") == want


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (0.9994e-3, "999 µs"), (0.9996e-3, "1.00 ms"), (0.99951, "1.00 s"), (0.9994, "999 ms"), (9.996e-3, "10.0 ms"),
        (99.96e-6, "100 µs"), (1e-3, "1.00 ms"), (0.0, "0.00 ns"), (-0.9996e-3, "-1.00 ms"), (None, "–"),
    ],
)  # fmt: skip
def test_nothing_is_a_thousand_of_a_unit(value: float | None, want: str) -> None:
    assert seconds(value) == want
    assert value is None or ("1000 " not in took(value) and "1000 " not in score(value))
