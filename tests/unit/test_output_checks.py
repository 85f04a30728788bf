"""How answers are compared where a problem has no check of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kbslurm_eval.judge.output_checks import Tolerance, difference

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
