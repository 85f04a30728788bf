"""Arrays across the link: dtypes, shapes and orders come back, and anything else is refused."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from kbslurm_eval.shared import layouts, values

np: Any = numpy
ARRAY: Any = np.ndarray

ARRAYS = [
    np.arange(12, dtype=np.float32).reshape(3, 4),
    np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    np.arange(24, dtype=np.int16).reshape(2, 3, 4).transpose(1, 2, 0),
    np.arange(20)[::2],
    np.zeros((0, 5)),
    np.array(3.5),
    np.array([True, False]),
    np.array([1 + 2j], dtype=np.complex64),
    np.arange(4, dtype=">i4"),
    np.array(["a", "bcd"]),
    np.float64(2.5),
    np.int8(-3),
]


@pytest.mark.parametrize("value", ARRAYS, ids=repr)
def test_an_array_comes_back_as_it_went(value: Any) -> None:
    found = values.copied(values.pack((value, [value])))[0]
    assert (type(found), found.dtype, found.shape) == (type(value), value.dtype, value.shape)
    assert np.array_equal(found, value)
    layout = layouts.Layout.of((value,))
    room = bytearray(layout.size)
    layouts.layout_from(layout.text()).write((value,), memoryview(room))
    (back,) = layout.read(room)
    assert (back.dtype, back.shape) == (value.dtype, value.shape)
    assert np.array_equal(back, value)


def test_an_input_is_a_view_and_an_output_is_a_copy() -> None:
    packed = bytearray(values.pack(np.arange(8.0)))
    found = values.unpack(memoryview(packed))
    found[0] = 99.0
    assert values.unpack(memoryview(packed))[0] == 99.0
    assert found.ctypes.data % 8 == 0


class _Lying(ARRAY):  # type: ignore[misc]
    @property
    def shape(self) -> Any:
        return (4,)

    @property
    def dtype(self) -> Any:
        return np.dtype(np.float64)


@pytest.mark.parametrize(
    "output",
    [
        np.zeros(4, np.float32),
        np.zeros(5),
        np.zeros((4, 1)),
        np.zeros(1),
        np.float64(0),
        [0.0] * 4,
        np.zeros(4).astype(object),
        np.zeros(3).view(_Lying),
    ],
    ids=lambda v: type(v).__name__ + str(getattr(v, "dtype", "")),
)
def test_an_array_of_another_form_is_refused(output: Any) -> None:
    layout = layouts.Layout.of(np.zeros(4))
    with pytest.raises((layouts.Misfit, ValueError)):
        layout.write(output, memoryview(bytearray(layout.size)))


def test_objects_and_records_have_no_place() -> None:
    for value in (np.array([object()]), np.zeros(2, dtype=[("a", "i4")])):
        with pytest.raises(values.Unsendable):
            values.pack(value)
        with pytest.raises(values.Unsendable):
            layouts.Layout.of(value)
