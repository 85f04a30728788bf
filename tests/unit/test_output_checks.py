"""How answers are compared where a problem has no check of its own."""

from __future__ import annotations

import array
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kbslurm_eval.judge.output_checks import (
    Tolerance,
    difference,
    finite,
    finite_where,
    is_empty,
    largest,
    norm_of,
    top_of_finite,
)

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


PARTS = [np.full((3, 3), 1e-6 * (n + 1), "f4") for n in range(64)]


def _times(value: Any, factor: float) -> Any:
    match value:
        case list() | tuple():
            return type(value)(_times(one, factor) for one in value)
        case dict():
            return {name: _times(one, factor) for name, one in value.items()}
        case np.ndarray() | np.number():
            return np.multiply(value, factor).astype(value.dtype)
        case _:
            return value if type(value) is int else value * factor


@pytest.mark.parametrize(
    "expected",
    [
        PARTS,
        tuple(PARTS),
        {n: {"a": part, "b": [float(part[0, 0])] * 3} for n, part in enumerate(PARTS)},
        [[float(n) * 1e-7, 2e-7] for n in range(1, 30)],
        [{"a": 1e-6, "n": 3}] * 20,
        [np.float32(1e-6)] * 20,
        [np.float64(1e-6)] * 20,
        [np.full(3, 1e-13)] * 20,
        [np.full((2, 2), 1e-6j, "c8")] * 20,
        (np.ones(100, "f4"), *PARTS),
    ],
)
def test_small_numbers_in_many_small_parts_are_no_zeros(expected: Any) -> None:
    assert difference(_times(expected, 0.0), expected, Tolerance()) != ""
    assert difference(expected, expected, Tolerance()) == ""
    near = 1 + (1e-12 if "e-13" in repr(expected) else 2e-5)
    assert difference(_times(expected, near), expected, Tolerance()) == ""
    assert difference(_times(expected, 0.0), expected, Tolerance(atol=2.0)) == "", "an author's own tolerance counts"


def test_a_large_part_makes_no_small_one_free() -> None:
    large, small = np.full(1000, 3.0, "f4"), np.full(1000, 1e-6, "f4")
    assert difference((large, small * 0), (large, small), Tolerance()) != ""


@pytest.mark.parametrize(
    ("value", "expected", "norm", "right"),
    [
        (np.float32(0), np.float32(1e-6), 0.06, False),  # a mean of squares of 4096 numbers around 1e-3
        (np.float32(1e-12), np.float32(1e-6), 0.06, False),
        (np.float32(-1e-6), np.float32(1e-6), 0.06, False),
        (np.float32(1.1e-6), np.float32(1e-6), 0.06, True),  # it may be small by chance
        (0.0, 1e-6, 0.06, False),
        ([0.0, 5.0], [1e-6, 5.0], 0.06, False),
        (np.array([0.0, 0.0, 1.0], "f4"), np.array([0.0, 1e-6, 1.0], "f4"), 0.06, False),
        (np.array([1e-9, 1e-6, 1.0], "f4"), np.array([0.0, 1e-6, 1.0], "f4"), 0.06, True),
        (np.float32(0), np.float32(3e-8), 64.0, True),  # what rounding leaves of 4096 numbers around 1
        (np.zeros(2, "f4"), np.array([3e-8, -6e-8], "f4"), 64.0, True),
        (0.0, 3e-8, 64.0, True),
        (0.0, 1e-6, math.inf, True),
        (np.zeros(()), np.asarray(1e-12), 1.0, False),
        (np.zeros((), "f2"), np.asarray(5e-4, "f2"), 0.1, False),
        (np.zeros((), "f2"), np.asarray(5e-4, "f2"), 1.0, True),
    ],
)
def test_a_small_number_that_stands_alone_is_about_right(value: Any, expected: Any, norm: float, right: bool) -> None:
    assert (difference(value, expected, Tolerance(), norm=lambda: norm) == "") == right
    assert difference(value, expected, Tolerance(atol=1e-3), norm=lambda: norm) == "", (
        "an author's own tolerance counts"
    )


def test_sums_that_are_small_by_chance_are_right_in_any_order() -> None:
    dice = np.random.default_rng(11)
    for scale in (1e-4, 1.0, 100.0):
        for _ in range(300):
            numbers = (scale * dice.standard_normal(4096)).astype("f4")
            one_by_one = np.add.accumulate(numbers, dtype="f4")[-1]
            norm = norm_of({"x": [numbers, 3]})
            for value, expected in ((one_by_one, numbers.sum()), (one_by_one / np.float32(4096), numbers.mean())):
                lenient = difference(value, expected, Tolerance(), norm=lambda: math.inf)
                assert difference(value, expected, Tolerance(), norm=lambda: norm) == lenient  # noqa: B023
    centred = (numbers - numbers.mean()).astype("f4")
    assert difference(np.float32(0), np.float32(centred.mean()), Tolerance(), norm=lambda: norm_of(centred)) == ""


def test_a_whole_number_among_floats_is_one() -> None:
    assert difference([0, 2.5], [0, 2.5], Tolerance()) == difference([1e-9, 2.5], [0, 2.5], Tolerance()) == ""
    assert difference([20_001, 2.5], [20_000, 2.5], Tolerance()) != ""
    assert difference([20_000.5, 2.5], [20_000, 2.5], Tolerance()) != ""
    assert difference([0.01, 2.5], [0, 2.5], Tolerance()) != ""


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


@pytest.mark.parametrize(
    ("value", "expected", "right"),
    [
        (np.array(["NaT", "NaT"], "M8[s]"), np.array(["2020-01-01", "2021-01-01"], "M8[s]"), False),
        (np.array(["NaT"], "m8[s]"), np.array([5], "m8[s]"), False),
        (np.array(["NaT"], "M8[s]"), np.array(["NaT"], "M8[s]"), True),
        (["nan", "1.5"], ["0.5", "1.5"], False),
        (["-Infinity", "1.5"], ["-inf", "1.5"], True),
        (np.array(["nan", "1.5"]), np.array(["0.5", "1.5"]), False),
        ([b" NaN "], [b"0.5"], False),
        (["nan and more", "x" * 100], ["a", "b"], True),
    ],
)
def test_nothing_in_the_place_of_a_time_or_of_a_number_that_is_written_out_is_finite(
    value: Any, expected: Any, right: bool
) -> None:
    assert (finite(value) or finite_where(value, expected)) is right


@pytest.mark.parametrize(
    ("value", "expected", "said"),
    [
        (np.array([(1 << 60) + 1]), np.array([1 << 60]), ""),
        (np.array([(1 << 60) + 100]), np.array([1 << 60]), "1 of 1"),
        (np.array([-(1 << 63)]), np.array([(1 << 63) - 1]), "1 of 1"),
        (np.array([127, 5], "i1"), np.array([-128, 6], "i1"), "1 of 2"),
        (np.array([0], "u8"), np.array([(1 << 64) - 1], "u8"), "1 of 1"),
        (np.array([2], "u8"), np.array([3], "u8"), ""),
    ],
)
def test_whole_numbers_within_a_tolerance_are_compared_in_all_their_bits(value: Any, expected: Any, said: str) -> None:
    found = difference(value, expected, Tolerance(atol=1.0))
    assert (said in found) if said else not found, found


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_the_largest_number_is_found_without_its_infinities(dtype: str) -> None:
    whole = np.array([1.5, -3.25, 2.0, 0.0], dtype)
    assert largest(whole) == 3.25
    assert largest(whole.reshape(2, 2)[:, ::-1]) == 3.25
    for strange in (np.nan, np.inf, -np.inf):
        assert largest(np.append(whole, np.array([strange], dtype))) == 3.25
    assert largest(np.array([np.nan], dtype)) == 0 == largest(np.zeros(0, dtype))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "g"])
def test_one_look_finds_the_largest_number_where_all_are_finite(dtype: str) -> None:
    whole = np.array([1.5, -3.25, 2.0, 0.0], dtype)
    assert top_of_finite(whole) == 3.25 == top_of_finite([whole[:1], (whole, whole[2:])])
    for strange in (np.nan, np.inf, -np.inf):
        assert top_of_finite(np.append(whole, np.array([strange], dtype))) is None
        assert top_of_finite((whole, np.array([strange], dtype))) is None


@pytest.mark.parametrize(
    "value", [1.5, [1.5, 2.5], [], "nan", None, np.arange(3), np.zeros(0), np.array([1j]), {"a": np.ones(2)}, object()]
)
def test_whatever_isnt_an_array_of_numbers_with_a_point_takes_looking_at_otherwise(value: Any) -> None:
    assert top_of_finite(value) is None


def test_a_long_list_is_told_by_its_first_item() -> None:
    class Counted(list[Any]):
        seen = 0

        def __iter__(self) -> Iterator[Any]:
            for item in super().__iter__():
                self.seen += 1
                yield item

    numbers = Counted([1.5] * 1000)
    assert top_of_finite(numbers) is None and numbers.seen == 1


@pytest.mark.parametrize(
    "expected", [True, 3, 2.5, 1j, "text", b"abc", bytearray(b"abc"), None, array.array("d", [1, 2])]
)
@pytest.mark.parametrize(
    "value", [np.zeros(3), np.zeros((2, 2)), np.zeros(0), np.float32(7), np.array(7), None, "x", [8]]
)
def test_an_answer_of_another_kind_is_wrong_in_a_sentence(value: Any, expected: Any) -> None:
    found = difference(value, expected, Tolerance())
    assert ("expected" in found or " isn't " in found) != (value is None and expected is None), found


@pytest.mark.parametrize(("value", "expected"), [(np.float32(3), 3), (np.array(3), 3), (np.bool_(True), True)])
def test_a_number_of_numpys_is_as_good_as_one_of_pythons(value: Any, expected: Any) -> None:
    assert not difference(value, expected, Tolerance())
