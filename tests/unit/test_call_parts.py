"""What of a call lies on a device: an input and a layout in two parts, and an output in one again."""

from __future__ import annotations

import array
import json
import random
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kbslurm_eval.device import call_parts
from kbslurm_eval.device.call_parts import DeviceChoice
from kbslurm_eval.shared import layouts, timing, values

ARRAYS = DeviceChoice(arrays=True)
NATIVE = DeviceChoice(arrays=True, native=True)
DATA = (array.array("d", [1.5, 2.5]), [1, 2, 3, 4, 5], {"k": array.array("i", []), "b": b"xyz"}, 7)


class _Device:
    """Memory as the judge fills it; the values of nodes over it."""

    def __init__(self, image: bytes, out: int = 0) -> None:
        self.image, self.out = image, bytearray(out)

    def made(self, node: Any, blocks: memoryview | None) -> Any:
        return values.made(node, memoryview(bytearray(self.image)) if blocks is None else blocks)

    def place(self, node: Any) -> Any:
        raise AssertionError("nobody asked for a place")

    def apart(self, node: Any, value: Any) -> Any:
        return value

    def read(self, node: Any) -> Any:
        found = memoryview(self.out)[call_parts.offset(node) :][: call_parts.laid_size(node)]
        return layouts.read_one(call_parts.at_zero(node), found)

    def raised(self, node: Any, found: memoryview) -> Any:
        raise AssertionError("nothing of this layout came through the host")

    def take(self, node: Any, value: Any, out: memoryview | None, where: str) -> None:
        layouts.Layout(tree=node, size=0).write(value, memoryview(self.out) if out is None else out)


@pytest.fixture
def device() -> Iterator[Any]:
    def side(image: bytes, out: int = 0) -> _Device:
        values.device_side = found = _Device(image, out)
        return found

    yield side
    values.device_side = None


def test_nothing_is_the_device_s_where_nobody_says_so() -> None:
    packed = values.pack(DATA)
    assert call_parts.split_input(packed, DeviceChoice()) is None
    assert call_parts.split_layout(layouts.Layout.of(DATA), DeviceChoice()) is None


@pytest.mark.parametrize("choice", [ARRAYS, NATIVE], ids=["python", "native"])
@pytest.mark.parametrize("mark", ["G", "H"])
def test_an_input_in_two_parts_is_the_same_input(device: Any, choice: DeviceChoice, mark: str) -> None:
    found = call_parts.split_input(values.pack(DATA), choice, mark)
    assert found is not None
    device(b"".join(part for _, part in found.pieces()))
    assert values.copied(found.payload) == DATA
    assert (found.size > 0) == (mark == "G")


def test_what_is_the_device_s_doesn_t_travel_by_the_link() -> None:
    secret = array.array("d", [3.25] * 40)
    packed = values.pack((secret, b"plain"))
    found = call_parts.split_input(packed, ARRAYS)
    assert found is not None
    assert struct.pack("<d", 3.25) in packed
    assert struct.pack("<d", 3.25) not in found.payload
    assert b"plain" in found.payload


def test_blocks_on_a_device_are_aligned() -> None:
    found = call_parts.split_input(values.pack([array.array("b", b"x" * n) for n in (1, 300, 0, 5)]), ARRAYS)
    assert found is not None
    assert [at % call_parts.ALIGN for at, _ in found.blocks] == [0] * 4
    assert b"".join(part for _, part in found.pieces())[256:556] == b"x" * 300


@pytest.mark.parametrize("seed", range(8))
def test_an_output_in_two_parts_is_the_same_output(device: Any, seed: int) -> None:
    dice = random.Random(seed)
    output = {
        "y": array.array("d", [dice.random() for _ in range(dice.randrange(50))]),
        "rest": [dice.randrange(9), (array.array("q", range(dice.randrange(9))), "text"), dice.random()],
    }
    layout = layouts.Layout.of(output)
    place = call_parts.split_layout(layout, ARRAYS)
    assert place is not None
    side = device(b"", place.size)
    host = bytearray(place.layout.size)
    told = layouts.layout_from(place.layout.text())
    told.write(output, memoryview(host))
    assert place.layout.read(bytes(host), side) == output


def test_an_output_that_is_all_the_device_s_needs_nothing_of_the_link() -> None:
    place = call_parts.split_layout(layouts.Layout.of((array.array("d", [1.0]), None)), ARRAYS)
    assert place is not None
    assert place.layout.size == 0


@pytest.mark.parametrize("packed", [(1, np.arange(4.0), [np.zeros(2), np.ones((2, 2))]), {"y": np.arange(3)}])
def test_destinations_on_a_device_are_over_the_output(packed: Any) -> None:
    """Numbered as in the input; what is in them comes from where it was staged."""
    whole = values.pack(packed)
    found = call_parts.split_input(whole, ARRAYS)
    place = call_parts.split_layout(layouts.Layout.of(packed), ARRAYS)
    assert found is not None
    assert place is not None
    last = len(found.blocks) - 1
    at, size, there = place.pieces[last]
    told, laid = call_parts.with_destinations(found, {last: (at, size)}, place.pieces)
    assert laid == [(found.blocks[last][0], there, size)]
    marks = json.dumps(values.tree(told.payload))
    assert (marks.count('"P"'), marks.count('"G"')) == (1, last)
    assert call_parts.with_destinations(found, {}, place.pieces) == (found, [])


def test_compiled_code_gets_arrays_in_c_order(device: Any) -> None:
    given = np.arange(6.0).reshape(2, 3).T
    found = call_parts.split_input(values.pack(given), NATIVE)
    assert found is not None
    (mark, node) = json.loads(found.payload[16 : 16 + int.from_bytes(found.payload[:8], "little")])
    assert (mark, node[2], node[4]) == ("G", [3, 2], [0, 1])
    assert b"".join(part for _, part in found.pieces())[: given.nbytes] == given.tobytes()


@pytest.mark.parametrize(
    ("seen", "claimed", "sd", "trip", "agreed"),
    [
        (10_000, 8_100, 0, 0, True),
        (10_000, 7_900, 0, 0, False),
        (1_000_000, 851_000, 0, 0, True),
        (1_000_000, 849_000, 0, 0, False),
        (1_000_000, 1_151_000, 0, 0, False),
        (10_000, 4_100, 2_000, 0, True),
        (10_000, 0, 2_000, 0, False),
        # as on an H200: the shortest kernel, the longest one beside its claim, and half of what it took claimed
        (-49_000, 3_400, 4_600, 283_600, True),
        (1_660_000, 1_469_000, 5_200, 303_800, True),
        (1_660_000, 830_000, 5_200, 303_800, False),
    ],
)
def test_a_claimed_device_time_agrees_within_bounds(
    seen: float, claimed: float, sd: float, trip: float, agreed: bool
) -> None:
    assert timing.agrees(seen, claimed, sd, trip) is agreed
