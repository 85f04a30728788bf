"""Where a wrong answer first differs from the reference's, and what the differences have in common."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest

from kbslurm_eval.judge import first_wrong
from kbslurm_eval.judge.output_checks import Tolerance
from kbslurm_eval.shared import values

WANT = np.arange(1, 13, dtype="f4").reshape(3, 4)
NO_INPUT = values.pack(None)


def changed(at: tuple[int, ...], to: float) -> Any:
    other = WANT.copy()
    other[at] = to
    return other


def told(got: Any, want: Any, tolerance: Tolerance | None = None, packed: bytes = NO_INPUT) -> str:
    return first_wrong.told(got, want, tolerance or Tolerance(), packed)


def test_the_first_wrong_element_has_its_index_both_values_the_tolerance_and_how_many_are_wrong() -> None:
    other = changed((1, 2), 70.5)
    other[2, 0] = -1
    assert told(other, WANT) == (
        "the first element that differs from the reference's answer is output[1, 2]: 70.5, not 7; "
        "2 of 12 differ by more than rtol 0.0001, atol 0.0001"
    )
    assert "2 of 12 differ by more than rtol 0.01, atol 0.5" in told(other, WANT, Tolerance(rtol=0.01, atol=0.5))


@pytest.mark.parametrize(
    ("got", "want", "said"),
    [
        (np.zeros_like(WANT), WANT, first_wrong.ALL_ZERO),
        (WANT[:, :3].T.copy(), WANT[:, :3].copy(), "they are the numbers of the transposed answer"),
        (WANT * 3, WANT, "each is 3 times the right one"),
        (WANT * np.linspace(1, 1.004, 12, dtype="f4").reshape(3, 4), WANT, "off by at most 0.4 %"),
        (np.where(WANT > 5, 0, WANT), WANT, first_wrong.LAST_BLOCK),
        (changed((0, 1), float("nan")), WANT, "1 are NaN"),
        ([3.0, 2.0, 1.0], [1.0, 2.0, 3.0], "they are the right numbers in another order"),
        ([0.0] * 3, [1.0, 2.0, 3.0], first_wrong.ALL_ZERO),
        ([2.0, 4.0, 6.0], [1.0, 2.0, 3.0], "each is 2 times the right one"),
        ([1, 2, 4, 9], [1, 2, 3, 4], first_wrong.LAST_BLOCK),
        (array.array("i", [1, 5]), array.array("i", [1, 2]), "output[1]: 5, not 2; 1 of 2 differ"),
        ({"a": [1.0], "b": WANT * 3}, {"a": [1.0], "b": WANT}, "output['b'][0, 0]: 3, not 1; 12 of 13 differ"),
        ((WANT, 2.5), (WANT, 2.0), "output[1]: 2.5, not 2; 1 of 13 differ"),
        (np.arange(3), np.arange(3) + 1, "output[0]: 0, not 1; 3 of 3 differ"),
        (
            WANT,
            WANT + 1e-7,
            "the numbers that were compared (12) are within rtol 0.0001 and atol 0.0001 of the reference's answer",
        ),
    ],
)
def test_what_differences_have_in_common_is_said(got: Any, want: Any, said: str) -> None:
    assert said in told(got, want)


@pytest.mark.parametrize(("wrong", "want"), [(1e6, 0.0), (float("inf"), 2.0)])
def test_a_ratio_is_only_told_of_what_is_wrong(wrong: float, want: float) -> None:
    """Else three right numbers beside a wrong one said "off by at most 0 %"."""
    for kind in (list, np.array):
        said = told(kind([wrong, 1.0, 1.0, 1.0]), kind([want, 1.0, 1.0, 1.0]))
        assert "output[0]" in said and "off by" not in said and "times the right one" not in said


def test_a_long_list_is_cut_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_wrong, "PLAIN_CAP", 4)
    same, other = array.array("d", [1.0] * 9), array.array("d", [1.0] * 8 + [5.0])
    assert told(other, same).startswith("the numbers that were compared (4) are within"), "not: every number is"


@pytest.mark.parametrize(("got", "want"), [("a", "b"), (WANT, WANT[:2]), (None, WANT), ([], []), ([1.0], ["a"])])
def test_nothing_is_said_of_what_cannot_be_compared(got: Any, want: Any) -> None:
    assert told(got, want) == ""


def test_a_large_answer_is_compared_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_wrong, "PIECE", 5)
    monkeypatch.setattr(first_wrong, "PATTERN_CAP", 5)
    assert "output[1, 2]: 0, not 7; 6 of 12" in told(np.where(WANT > 6, 0, WANT), WANT)
    monkeypatch.setattr(first_wrong, "NUMBERS_CAP", 11)
    assert told(np.zeros_like(WANT), WANT) == "", "and one beyond the bound isn't"


def test_an_input_with_strides_of_its_own_is_named_where_nothing_else_explains_it() -> None:
    packed = values.pack((WANT, {"w": WANT.T}))
    assert first_wrong.strided_input(packed).startswith("data[1]['w'] isn't contiguous")
    assert "isn't contiguous" in told(changed((0, 2), 9), WANT, packed=packed)
    assert "isn't contiguous" not in told(WANT * 3, WANT, packed=packed)
    assert first_wrong.strided_input(values.pack((WANT, 1))) == ""


@pytest.mark.parametrize(
    ("said", "is_told"),
    [
        ("mismatch found! ERROR AT (0, 1): 1.0 2.0", True),
        ("row 3 isn't sorted", True),
        ("output[4] is 2.0", True),
        ("number 7 is 1, not 2", True),
        ("the product is wrong", False),
        ("[0.1, 0.2] isn't [0.2, 0.1]", False),
        ("", False),
        ("'at" + " " * 200_000 + "' isn't the reverse", False),  # an answer that is quoted: it took a minute
    ],
    ids=lambda given: str(given)[:20],
)
def test_a_check_that_names_a_place_keeps_the_word(said: str, is_told: bool) -> None:
    assert first_wrong.already_told(said) is is_told
