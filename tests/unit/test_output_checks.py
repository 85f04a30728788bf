"""How answers are compared where a problem has no check of its own."""

from __future__ import annotations

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


@pytest.mark.parametrize("empty", [[], (), {}, ((), [b""]), np.empty((0, 1)), {"a": np.empty(0)}, "", None])
def test_what_holds_nothing_is_empty(empty: Any) -> None:
    assert is_empty(empty)


@pytest.mark.parametrize("some", [0, 0.0, False, [[], 0], np.zeros(()), {"a": np.empty(0), "b": 1}, b"x"])
def test_what_holds_anything_is_not(some: Any) -> None:
    assert not is_empty(some)
