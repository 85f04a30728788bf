"""Which arrays of an input are destinations, and how an input travels whose destinations are where answers are read."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from kbslurm_eval.shared import destinations, layouts, values

np: Any = numpy


def _found(data: Any, answer: Any) -> tuple[bytes, destinations.Places, layouts.Layout]:
    packed = values.pack(data)
    given = values.copied(packed)
    answered = answer(given)
    layout = layouts.Layout.of(answered)
    return packed, destinations.found(packed, given, layout.tree, answered), layout


def _grid(n: int) -> Any:
    return np.arange(n, dtype=np.float32)


def test_the_very_array_of_the_input_is_a_destination_and_nothing_like_it() -> None:
    data = ({"a": _grid(20), (1, "x"): [_grid(20), 7]}, _grid(3))
    _, places, layout = _found(data, lambda d: (d[1], d[0][(1, "x")][0]))
    assert places == {2: (layout.tree[1][0][3], 12), 1: (layout.tree[1][1][3], 80)}
    for unlike in (
        lambda d: d[1].copy(),
        lambda d: d[0]["a"][:10],
        lambda d: d[0]["a"].view(np.int32),
        lambda d: (d[1], d[1]),
        lambda d: d[0]["a"].reshape(4, 5).T,
    ):
        assert _found(data, unlike)[1] == {}, "another size, type or order, or one array as two answers"


@pytest.mark.parametrize("first", [True, False])
def test_a_destination_is_over_the_output_and_keeps_what_it_contained(first: bool) -> None:
    data = (_grid(300), [1.0] * 9, _grid(7)) if first else (_grid(7), [1.0] * 9, _grid(300))
    packed, places, layout = _found(data, lambda d: d[0])
    payload = destinations.placed(packed, places)
    out = memoryview(bytearray(layout.size))
    for at, part in payload.laid:
        out[at : at + len(part)] = part
    found = values.unpack(memoryview(bytearray(payload.joined())), out)
    assert [list(one) for one in found] == [list(one) for one in data]
    found[0][:] = 5
    assert (layout.read(bytes(out)) == 5).all()
    assert sum(len(part) for _, part in payload.parts) <= len(packed) - data[0].nbytes + 64, (
        "its bytes don't travel twice"
    )


def test_an_answer_at_its_place_stays_and_one_at_anothers_is_copied_first() -> None:
    layout = layouts.Layout.of((_grid(4), _grid(4)))
    out = memoryview(bytearray(layout.size))
    first, second = layout.places(out)
    first[:], second[:] = 1, 2
    layout.write((first, second), out)
    assert [list(one) for one in layout.read(bytes(out))] == [[1] * 4, [2] * 4]
    layout.write((second, first), out)
    assert [list(one) for one in layout.read(bytes(out))] == [[2] * 4, [1] * 4]
    one = layouts.Layout.of(_grid(4))
    place = one.places(out)
    place[:] = _grid(4)
    one.write(place[::-1], out)
    assert list(one.read(bytes(out[: one.size]))) == [3, 2, 1, 0]


def test_places_have_the_answers_form_and_none_for_what_is_no_array() -> None:
    layout = layouts.Layout.of({"a": [_grid(4), 3], "b": (1.5, _grid(2))})
    places = layout.places(memoryview(bytearray(layout.size)))
    assert places["a"][1] is None and places["b"][0] is None
    assert places["a"][0].shape == (4,) and places["b"][1].dtype == np.float32
