"""Values across the link: what is packed comes back the same, and what a runner wrote is read by the judge's layout
only."""

from __future__ import annotations

import array
import importlib
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm_eval.judge.reference import Case, Prepared
from kbslurm_eval.shared import layouts, values

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(),
    st.complex_numbers(allow_nan=False, allow_infinity=False),
)  # fmt: skip
ANY = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(st.text() | st.integers(), inner),
        st.lists(st.floats(allow_nan=False)), st.lists(st.integers(-(2**63), 2**63 - 1)),
        st.lists(st.integers(0, 255)).map(bytearray),
        st.lists(st.floats(allow_nan=False)).map(lambda v: array.array("d", v)),
    ),
    max_leaves=12,
)  # fmt: skip


def _typed(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value), [_typed(v) for v in value]
    if isinstance(value, dict):
        return dict, {k: _typed(v) for k, v in value.items()}
    return type(value), value


@given(ANY)
def test_what_is_packed_comes_back(value: Any) -> None:
    assert _typed(values.copied(values.pack(value))) == _typed(value)


@given(ANY)
def test_numbers_that_stand_apart_come_back(value: Any) -> None:
    packed = values.pack_into(value, lambda size: memoryview(bytearray(size)), apart=True)
    assert _typed(values.copied(packed)) == _typed(value)
    assert values.numbers_apart(values.tree(packed)) == values.tree(packed), "no number is left in the text"
    late = values.made_ahead(values.told_ahead(values.head(packed)), packed, memoryview(bytearray(8)))
    assert _typed(late.whole() if type(late) is values.Late else late) == _typed(value)


def test_numbers_apart_are_those_of_the_same_text() -> None:
    def packed(*numbers: Any) -> memoryview:
        value = {"x": np.arange(3.0), "k": numbers[0]}, [numbers[1]], numbers[2], np.float32(numbers[0])
        return values.pack_into(value, lambda size: memoryview(bytearray(size)), apart=True)

    one, other = packed(1, 2.5, True), packed(-7, float("nan"), False)
    assert values.head(one) == values.head(other)
    plain = [values.tree(values.pack(({"k": number},))) for number in (1, -7)]
    assert plain[0] != plain[1] and values.numbers_apart(plain[0]) == values.numbers_apart(plain[1])
    room = memoryview(bytearray(len(one)))
    late = values.made_ahead(values.told_ahead(values.head(one)), room, memoryview(bytearray(8)))
    start = len(values.head(one))
    for at, blob in values.single_numbers(other):
        room[start + at : start + at + len(blob)] = blob
    (given, alone, flag, single) = late.whole()
    assert (given["k"], str(alone), flag, single) == (-7, "[nan]", False, np.float32(-7))
    assert not given["x"].any(), "an array's contents come later"
    changed = [(1.0, 2.5, True), (1, 2, True), (1, 2.5, 1), (1 << 63, 2.5, True)]
    assert all(values.head(packed(*numbers)) != values.head(one) for numbers in changed), "a type is in the text"


@given(ANY)
def test_an_output_of_its_own_layout_comes_back(value: Any) -> None:
    layout = layouts.Layout.of(value)
    room = bytearray(os.urandom(layout.size))
    layouts.layout_from(layout.text()).write(value, memoryview(room))
    assert _typed(layout.read(bytes(room))) == _typed(value)


@given(ANY, st.binary(max_size=4096))
def test_whatever_bytes_a_runner_left_are_read_or_refused(value: Any, noise: bytes) -> None:
    layout = layouts.Layout.of(value)
    found = (noise * (layout.size // max(1, len(noise)) + 1))[: layout.size]
    try:
        read = layout.read(found)
    except layouts.Misfit:
        return
    assert _types(read) == _types(values.copied(values.pack(value))), "what the layout says, not what the bytes say"


def _types(value: Any) -> Any:
    """The types of a value; among floats a whole number may be one."""
    if isinstance(value, list | tuple):
        return type(value), [_types(v) for v in value]
    if isinstance(value, dict):
        return dict, {k: _types(v) for k, v in value.items()}
    return float if type(value) is int else type(value)


def _answered(reference: Any, output: Any) -> Any:
    layout = layouts.Layout.of(reference)
    room = bytearray(os.urandom(layout.size))
    layouts.layout_from(layout.text()).write(output, memoryview(room))
    return layout.read(bytes(room))


@pytest.mark.parametrize(
    ("reference", "output", "read"),
    [
        ([0, 1.5], [0.0, 2.5], [0, 2.5]),
        ([0, 1.5], [1e-17, 2], [1e-17, 2.0]),
        ([-3, 1.5], [-4, -0.5], [-4, -0.5]),
        ((0, 1.5), (-(1 << 70), 1.5), (-(1 << 70), 1.5)),
        ({"a": 0, "b": 1.5}, {"a": 0.25, "b": 0}, {"a": 0.25, "b": 0.0}),
        ([0, 1.5] * 8, [2.0, 2.0] * 8, [2, 2.0] * 8),
        ([0, 1.5] * 8, [0.5, 1] * 8, [0.5, 1.0] * 8),
        ([1 << 60, 1.5] * 8, [1 << 60, 1.5] * 8, [1 << 60, 1.5] * 8),
        ([1] * 4, [2.0] * 4, [2] * 4),
        (1, 3.0, 3),
    ],
)
def test_a_float_may_stand_for_a_whole_number(reference: Any, output: Any, read: Any) -> None:
    assert _typed(_answered(reference, output)) == _typed(read)


@pytest.mark.parametrize(
    ("reference", "output"),
    [
        (np.asarray(1.5), np.float64(2.5)),
        (np.asarray(1.5, "f4"), np.float32(2.5)),
        (np.asarray(1.5, "f4"), 2.5),
        (np.asarray(1.5), 2),
        (np.asarray(3), 2),
        (np.asarray(True), np.False_),
        (np.asarray(1j), 2.5),
        (np.float64(1.5), np.asarray(2.5)),
        (np.int64(3), np.asarray(2)),
        (1.5, np.asarray(2.5)),
        (3, np.asarray(2)),
        (True, np.asarray(False)),
    ],
)
def test_a_number_and_an_array_without_dimensions_stand_for_each_other(reference: Any, output: Any) -> None:
    read = _answered(reference, output)
    assert read == output
    assert type(read) is type(reference)
    assert getattr(read, "dtype", None) == getattr(reference, "dtype", None)


def test_fewer_bytes_than_declared_are_refused() -> None:
    layout = layouts.Layout.of([1.0] * 10)
    with pytest.raises(layouts.Misfit):
        layout.read(bytes(layout.size - 1))


class _Hostile(list[float]):
    def __eq__(self, other: object) -> bool:
        return True

    def __len__(self) -> int:
        return 4

    __hash__ = None


@pytest.mark.parametrize(
    ("reference", "output", "shape"),
    [
        ([1.0] * 4, (1.0,) * 4, False),
        ([1.0] * 4, [1.0] * 5, True),
        ([1.0] * 4, ["a"] * 4, False),
        ([1] * 4, [1.5] * 4, False),
        ([1] * 4, [1 << 70] * 4, False),
        (1, 1.5, False),
        (np.asarray(1.5, "f4"), np.float64(1.5), False),
        (np.asarray(1), 1.5, False),
        (np.asarray(True), 1, False),
        (np.asarray(1.5), "1", False),
        (np.asarray(1, "u1"), 300, False),
        (np.asarray(1.5), [1.5], False),
        (np.ones(1), np.float64(1), False),
        (True, np.asarray([True]), False),
        (True, np.asarray(1), False),
        ([1, 1.5], ["1", 1.5], False),
        ([1, 1.5] * 8, ["1", 1.5] * 8, False),
        ([1, 1.5], [1 << 4000, 1.5], False),
        (1, 1 << 4000, False),
        (1.0, "1", False),
        (True, 1, False),
        ("a", b"a", False),
        ("a", "a" * 1000, True),
        (b"a", "a", False),
        ((1, 2), [1, 2], False),
        ((1, 2), (1, 2, 3), True),
        ({"a": 1}, {"b": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, [("a", 1)], False),
        (None, 0, False),
        (array.array("d", [1.0]), [1.0], False),
        (array.array("d", [1.0]), array.array("f", [1.0]), False),
        (array.array("d", [1.0]), array.array("d", [1.0, 2.0]), True),
        ([1.0] * 4, _Hostile([1.0] * 3), False),
    ],
)
def test_an_output_of_another_form_is_refused(reference: Any, output: Any, shape: bool) -> None:
    layout = layouts.Layout.of(reference)
    with pytest.raises(layouts.Misfit) as misfit:
        layout.write(output, memoryview(bytearray(layout.size)))
    assert misfit.value.shape == shape


def test_what_has_no_place_in_the_link_is_told() -> None:
    for value in (object(), {1, 2}, [object()], {"a": object()}, {object(): 1}, open, range(3)):
        if not isinstance(value, set | range):  # these go to a runner, and no output is one
            with pytest.raises(values.Unsendable):
                values.pack(value)
        with pytest.raises(values.Unsendable):
            layouts.Layout.of(value)
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(values.Unsendable, match="nested"):
        values.pack(deep)


def test_a_null_call_carries_arrays_only() -> None:
    given = ([1.0] * 1000, array.array("d", [1.0] * 10), "text", {"n": 3})
    assert values.copied(values.pack(given, arrays_only=True)) == (
        None,
        array.array("d", [1.0] * 10),
        None,
        {"n": None},
    )


def test_what_a_call_has_to_move_at_least_is_its_arrays_and_its_output() -> None:
    layout = layouts.Layout(tree=["0"], size=800)

    def moved(value: object, **places: tuple[int, int]) -> int:
        packed = values.pack(value)
        laid = {int(at.removeprefix("at")): place for at, place in places.items()}
        case = Case(index=0, params={})
        return Prepared(case=case, packed=packed, layout=layout, expected=None, exact=True, places=laid).array_bytes

    assert moved([array.array("d", range(1000)), 3]) == 8000 + 800
    assert moved([array.array("d", range(1000)), 3], at0=(0, 8000)) == 800, "an array that is to be written isn't read"
    assert moved(3) == 800
    for value in ("x" * 100, b"x", bytearray(99)):
        assert layouts.Layout.of((value, {"k": [value]}, array.array("d", range(10)))).least_bytes == 80


@pytest.mark.torch
@pytest.mark.usefixtures("with_torch")
def test_a_number_and_a_tensor_without_dimensions_stand_for_each_other() -> None:
    torch: Any = importlib.import_module("torch")
    for reference, output in (
        (torch.tensor(1.5), 2.5), (torch.tensor(3), 2), (torch.tensor(True), False), (torch.tensor(1.5), 2),
        (1.5, torch.tensor(2.5)), (3, torch.tensor(2)), (True, torch.tensor(False)), ([0, 1.5], [torch.tensor(0.5), 1]),
    ):  # fmt: skip
        read = _answered(reference, output)
        assert (read, type(read)) == (output, type(reference))
    for reference, output in ((torch.tensor(3), 1.5), (torch.tensor(1, dtype=torch.uint8), 300), (torch.ones(1), 1.0)):
        with pytest.raises(layouts.Misfit):
            _answered(reference, output)
