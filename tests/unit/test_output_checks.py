"""How answers are compared where a problem has no check of its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from kbslurm_eval.judge.output_checks import Tolerance, difference, is_empty

WIDE = np.array([(1 << 62) + 1, -5, 0])


@pytest.mark.parametrize(
    ("value", "expected", "said"),
    [
        (WIDE, WIDE, ""),
        (WIDE + 100, WIDE, "3 of 3 numbers of"),
        (
            WIDE - np.array([1, 0, 0]),
            WIDE,
            f"1 of 3 numbers of output differ; number 0 is {1 << 62}, not {(1 << 62) + 1}",
        ),
        (WIDE.astype("u8") | np.uint64(900), WIDE.astype("u8"), "of 3 numbers of"),
        (WIDE.astype("f8"), WIDE, "1 of 3 numbers of"),
        (np.array([3.0, -5.0, 0.0]), np.array([3, -5, 0]), ""),
        (np.array([np.nan, -5.0, 0.0]), np.array([3, -5, 0]), "1 of 3 numbers of"),
        (
            np.array([True, False]),
            np.array([True, True]),
            "1 of 2 numbers of output differ; number 1 is False, not True",
        ),
        (np.array([1.0, 2.0]), np.array([1.0, 2.5]), "number 1 is 2, not 2.5"),
    ],
)
def test_whole_numbers_are_compared_in_all_their_bits(value: Any, expected: Any, said: str) -> None:
    found = difference(value, expected, Tolerance(), "output")
    assert (said in found) if said else not found, found


AT = np.array([5, 300_000, 900_000])


@pytest.mark.parametrize(
    ("value", "tolerance", "said"),
    [
        (AT + 1, Tolerance(rtol=1e-3, atol=1e-3), "3 of 3 numbers of"),
        (AT + AT // 1001, Tolerance(rtol=1e-2), "2 of 3 numbers of"),
        (AT + np.array([1, -1, 0]), Tolerance(rtol=1e-3, atol=1), ""),
        (AT + 2, Tolerance(atol=1.9), "3 of 3 numbers of"),
    ],
)
def test_an_authors_rtol_is_no_licence_for_whole_numbers(value: Any, tolerance: Tolerance, said: str) -> None:
    found = difference(value, AT, tolerance, "output")
    assert (said in found) if said else not found, found


SMALL = np.full(1000, 1e-5, "f4")
MIXED = np.concatenate([np.full(900, 3.0, "f4"), np.full(100, 1e-6, "f4")])
PRECISE = np.linspace(1, 2, 100)


@pytest.mark.parametrize(
    ("value", "expected", "said"),
    [
        (np.zeros_like(SMALL), SMALL, "1000 of 1000"),
        (SMALL * np.float32(1.00005), SMALL, ""),
        (list(map(float, np.zeros_like(SMALL))), list(map(float, SMALL)), "is 0.0; 9.9"),
        (np.zeros((10, 100), "f2"), np.full((10, 100), 1e-3, "f2"), "1000 of 1000"),
        (np.zeros(20, "c8"), np.full(20, 1e-5j, "c8"), "20 of 20"),
        (np.where(MIXED < 1, np.float32(2e-6), MIXED), MIXED, ""),  # what cancels out beside large numbers
        (np.full(1000, 1e-6, "f4"), np.zeros(1000, "f4"), ""),
        (np.array([1e-5], "f4"), np.array([2e-5], "f4"), ""),  # one number is small by chance
        (PRECISE.astype("f4").astype("f8"), PRECISE, "of 100 numbers"),
        (PRECISE * (1 + 1e-12), PRECISE, ""),
        ((PRECISE + 0j).astype("c8").astype("c16"), PRECISE + 0j, "of 100 numbers"),
        (np.full(20, 1e300), np.full(20, 1e300), ""),
        ([1e300] * 20, [1e300] * 20, ""),
        (np.full(20, np.inf), np.full(20, np.inf), ""),
        (np.zeros(100), PRECISE * 1e-200, "100 of 100"),  # whose squares are 0
        ([0.0] * 100, (PRECISE * 1e-200).tolist(), "is 0.0; 1e-200"),
        (PRECISE * 1e-200 * (1 + 1e-12), PRECISE * 1e-200, ""),
        (np.append(np.zeros(100), -np.inf), np.append(PRECISE * 1e-12, -np.inf), "100 of 101"),  # masked
        ([*[0.0] * 100, math.inf], [*(PRECISE * 1e-12).tolist(), math.inf], "is 0.0; 1e-12"),
        (np.append(np.zeros(100), np.nan), np.append(PRECISE * 1e-12, np.nan), "100 of 101"),
    ],
)
def test_zeros_are_no_answer_of_small_numbers_and_single_precision_none_of_double(
    value: Any, expected: Any, said: str
) -> None:
    found = difference(value, expected, Tolerance(), "output")
    assert (said in found) if said else not found, found
    if not isinstance(expected, list):
        assert not difference(np.zeros_like(SMALL), SMALL, Tolerance(atol=1e-4)), "an author's own tolerance counts"


@pytest.mark.parametrize("empty", [[], (), {}, ((), [b""]), np.empty((0, 1)), {"a": np.empty(0)}, "", None])
def test_what_holds_nothing_is_empty(empty: Any) -> None:
    assert is_empty(empty)


@pytest.mark.parametrize("k", [1024, 4096, 16384])
def test_sums_in_another_order_are_right_however_large_their_parts(k: int) -> None:
    """What is left of large numbers is as inexact as they are: even the exact product was taken for wrong."""
    dice = np.random.default_rng(3)
    a, b = (dice.standard_normal(shape, dtype=np.float32) for shape in ((128, k), (k, 128)))
    exact = (a.astype("f8") @ b.astype("f8")).astype("f4")
    one_by_one = np.zeros_like(exact)
    for n in range(k):
        one_by_one += a[:, n : n + 1] * b[n]
    assert difference(one_by_one, a @ b, Tolerance()) == ""
    assert difference(exact, a @ b, Tolerance()) == ""
    assert difference(exact.astype("f2"), a @ b, Tolerance()) != "", "nor is half precision enough for single"


@pytest.mark.parametrize("spread", [1e9, 3.0, 5.0])
def test_a_few_large_numbers_make_no_others_free(spread: float) -> None:
    """Of masked logits, or of exponentials, most could be zeros."""
    dice = np.random.default_rng(5)
    numbers = dice.standard_normal(4096).astype("f4")
    expected = (
        np.where(dice.random(4096) < 0.5, np.float32(-spread), numbers) if spread > 10 else np.exp(numbers * spread)
    )
    without = np.where(np.abs(expected) < np.median(np.abs(expected)), np.float32(0), expected)
    assert difference(without, expected, Tolerance()) != ""
    assert difference(without.tolist(), expected.tolist(), Tolerance()) != ""


@pytest.mark.parametrize("some", [0, 0.0, False, [[], 0], np.zeros(()), {"a": np.empty(0), "b": 1}, b"x"])
def test_what_holds_anything_is_not(some: Any) -> None:
    assert not is_empty(some)
