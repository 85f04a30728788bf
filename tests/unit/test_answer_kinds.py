"""A number wherever the reference's answer has one, in whatever container."""

from __future__ import annotations

import array
from typing import Any

import numpy
import pytest

from kbslurm_eval.judge.answer_kinds import has_numbers, only_numbers

NAN = float("nan")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ([1, 2, 3], [1.0, 2.0, 3.0]),
        ((1.0, 2.0), [1.0, 2.0, 3.0]),
        ([[1.0], [2.0]], array.array("d", [1.0, 2.0])),
        ([1, None, 2], [None, 1, 2]),
        ([1, None, None, 2, 3], [None, 1, 2]),
        ([[1, None], [2, 3]], [[None, 1], [2, 3]]),
        (("name", [1, 2]), ("name", [1.0, 2.0, 3.0])),
        (["name", 1, 2, 3], ("name", [1.0, 2.0, 3.0])),
        ([["a", 1], ["b", 2], ["c", 3]], [("a", 1.0), ("b", 2.0)]),
        ({"a": 1.0, "b": 2.0}, [("a", 1.0), ("b", 2.0)]),
        ([("a", 1.0), ("b", 2.0)], {"a": 1.0, "b": 2.0}),
        ({"c": 1.0}, {"a": 1.0, "b": 2.0}),
        ({0: 1.0, 1: 2.0}, [1.0, 2.0]),
        (None, None),
        ("text", None),
        ([1.0, "x"], None),
        ([], [1.0]),
        ("other", "text"),
        (True, 1.0),
    ],
)
def test_this_has_numbers_where_that_has(output: Any, expected: Any) -> None:
    assert has_numbers(output, expected)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("nan", 1.0),
        (None, 1.0),
        ("nan", [1.0, 2.0]),
        (["nan", 2.0], [1.0, 2.0]),
        ([None, 2.0], [1.0, 2.0]),
        (["nan"] * 3, [1.0, 2.0]),
        ([b"nan", 1.0], array.array("d", [1.0, 2.0])),
        (("name", ["nan", 2.0]), ("name", [1.0, 2.0])),
        (("name", ["nan", "nan", 3.0]), ("name", [1.0, 2.0])),
        (["name", "nan", 2.0], ("name", [1.0, 2.0])),
        (["name", "nan", 2.0], ["name", 1.0, 2.0]),
        ([("a", "nan"), ("b", 2.0)], [("a", 1.0), ("b", 2.0)]),
        ([("a", "nan"), ("b", "nan"), ("c", 3.0)], [("a", 1.0), ("b", 2.0)]),
        ({"a": "nan", "b": 2.0}, {"a": 1.0, "b": 2.0}),
        ({"a": "nan", "c": 2.0}, {"a": 1.0, "b": 2.0}),
        (["nan", 2.0], {"a": 1.0, "b": 2.0}),
        ({"nan": 0.0, "NaN": 0.0}, [1.0, 2.0]),
        ([None, "nan"], [None, 1.0]),
        ({"nan": 1.0}, {1: 1.0, 2: 2.0}),
    ],
)
def test_this_has_none_where_that_has_one(output: Any, expected: Any) -> None:
    assert not has_numbers(output, expected)


def test_numpys_are_numbers() -> None:
    for some in (numpy.ones(3), numpy.float32(1), [numpy.int8(1), 2.0]):
        assert only_numbers(some) and has_numbers(some, numpy.ones((3, 3)))
    assert not only_numbers(numpy.array(["nan"])) and not has_numbers(numpy.array(["nan"]), numpy.ones(1))
    assert not has_numbers(["nan"], numpy.ones(1)) and not has_numbers([None, 1.0], numpy.ones(2))


def test_no_empty_array_is_spread_over_the_numbers_of_another() -> None:
    """Where it can't be, a check would fail on it, or had other plans."""
    ones, none = numpy.ones, numpy.empty
    shapes: list[tuple[tuple[int, ...], tuple[int, ...], bool]] = [
        ((0, 3), (1, 3), False), ((0,), (1,), False), ((0, 1), (1, 3), False), ((1, 0), (4, 1), False),
        ((0,), (5, 1), False), ((0,), (3,), True), ((0, 3), (2, 3), True), ((0,), (0,), True),
    ]  # fmt: skip
    for got, want, fits in shapes:
        assert has_numbers((1.0, none(got)), (1.0, ones(want))) is fits, (got, want)
        assert not only_numbers((1.0, none(got)))
    assert not has_numbers((1.0, []), (1.0, ones(1))) and not has_numbers({"a": [[]]}, {"a": ones((1, 1))})


@pytest.mark.parametrize(
    ("output", "expected"),
    [(([1], []), ([], [2])), ([[1, 2], []], [[1], [2]]), ({"a": 1}, {}), ((1, numpy.empty(0)), (1, [1, 2]))],
)
def test_another_part_may_be_empty(output: Any, expected: Any) -> None:
    assert has_numbers(output, expected)


def test_only_numbers() -> None:
    assert all(map(only_numbers, (1, 1j, [1, 2.0], [(1, [2])], array.array("d", [1.0]), NAN, numpy.float32(1))))
    assert not any(map(only_numbers, (None, "1", [1, None], {"a": 1}, [(1, ["2"])], b"1", [{}], [], [1, []])))
