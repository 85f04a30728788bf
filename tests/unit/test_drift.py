"""How far two places are apart: ratios with their doubt."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.domain.drift import Pair, drift


def pair(home_s: float, there_s: float, doubt: float = 0.01) -> Pair:
    return Pair(
        home_s=home_s,
        home_low_s=home_s / (1 + doubt),
        home_high_s=home_s * (1 + doubt),
        there_s=there_s,
        there_low_s=there_s / (1 + doubt),
        there_high_s=there_s * (1 + doubt),
    )


def test_without_a_pair_nothing_is_said() -> None:
    assert drift([]) is None


def test_one_pair_has_its_measurements_doubt() -> None:
    found = drift([pair(1.0, 1.2)])
    assert found is not None
    assert found.ratio == pytest.approx(1.2)
    assert found.high / found.ratio == pytest.approx(1.01 ** math.sqrt(2))
    assert found.is_drift


def test_pairs_that_differ_among_themselves_are_in_doubt() -> None:
    found = drift([pair(1.0, 1.3), pair(2.0, 1.8), pair(1.0, 1.1)])
    assert found is not None
    assert not found.is_drift
    agreed = drift([pair(1.0, 1.1)] * 5)
    assert agreed is not None
    assert agreed.is_drift
    assert agreed.pairs == 5


@given(st.lists(st.tuples(st.floats(1e-6, 1e3), st.floats(0.1, 10)), min_size=1, max_size=30), st.floats(0, 0.2))
def test_the_ratio_is_always_within_its_interval(pairs: list[tuple[float, float]], doubt: float) -> None:
    found = drift([pair(home_s, home_s * ratio, doubt) for home_s, ratio in pairs])
    assert found is not None
    assert found.low <= found.ratio * (1 + 1e-9)
    assert found.ratio <= found.high * (1 + 1e-9)
    assert found.pairs == len(pairs)
