"""Arrays that share memory, and views with gaps: they arrive as they were, in whatever way they are carried."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from kbslurm_eval.device import call_parts
from kbslurm_eval.shared import destinations, values
from kbslurm_eval.shared.values import copied, pack


def base(rows: int = 6, cols: int = 8) -> Any:
    return np.arange(rows * cols, dtype=np.float32).reshape(rows, cols)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, ::2],
        lambda x: x[1:4, 2:5],
        lambda x: x.T[::3],
        lambda x: x[::-1],
        lambda x: x[:, ::-2],
        lambda x: np.broadcast_to(x[0], (5, 8)),
        lambda x: np.broadcast_to(x[:, :1], (6, 7)),
        lambda x: np.lib.stride_tricks.sliding_window_view(x[0], 3),
    ],
)  # fmt: skip
def test_a_view_keeps_its_strides(view: Any) -> None:
    made = view(base())
    (found,) = copied(pack([made]))
    assert (found.shape, found.strides, found.tolist()) == (made.shape, made.strides, made.tolist())


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.T, lambda x: x[2:4], lambda x: x[:0], lambda x: x[0, 0]])
def test_a_dense_array_is_carried_as_before(view: Any) -> None:
    made = view(base())
    (node,) = values.tree(pack([made]))[1]
    assert not any(isinstance(part, dict) for part in node)
    assert np.array_equal(copied(pack([made]))[0], made)


def test_what_is_written_into_one_is_seen_in_the_others() -> None:
    x = base()
    whole, same, left, flat = copied(pack((x, x, {"left": x[:, :3]}, x.reshape(-1).view(np.int32))))
    whole[0, 0] = 77
    assert same[0, 0] == left["left"][0, 0] == 77
    assert flat[0] == struct.unpack("<i", struct.pack("<f", 77))[0]
    left["left"][5, 2] = -1
    assert whole[5, 2] == -1
    assert np.shares_memory(whole, same)


def test_neighbours_in_memory_that_dont_overlap_are_apart() -> None:
    x = base()
    tree = values.tree(pack([x[:3], x[3:]]))
    assert all(isinstance(node[4], list) for node in tree[1])


def test_what_nobody_was_given_isnt_sent() -> None:
    x = np.full((4, 8), 1234.5)
    packed = bytes(pack([x[:, :2]]))
    assert packed.count(struct.pack("<d", 1234.5)) == 8


def test_shared_arrays_share_a_block_on_the_device_too() -> None:
    x = base()
    packed = pack([x, x[:, ::2], base(2, 2)])
    split = call_parts.split_input(packed, call_parts.DeviceChoice(arrays=True))
    assert split is not None
    (_, whole), (_, view), (_, other) = split_tree = values.tree(split.payload)[1]
    assert [mark for mark, _ in split_tree] == ["G", "G", "G"]
    assert whole[3] == view[3] != other[3]
    assert len(split.blocks) == 2
    half = call_parts.split_input(pack([x, x, b"kept"]), call_parts.DeviceChoice(tensors=True))
    assert half is None


def test_compiled_code_on_a_device_gets_them_dense() -> None:
    packed = pack([base()[:, ::2]])
    split = call_parts.split_input(packed, call_parts.DeviceChoice(arrays=True, native=True))
    assert split is not None
    ((_, block),) = split.blocks
    assert np.frombuffer(block, np.float32).tolist() == base()[:, ::2].ravel().tolist()


def test_a_destination_that_is_shared_is_no_destination() -> None:
    """Its answer is copied: written where it is read, it would be out of sight of the array that it shares with."""
    x, out = base(), np.zeros((6, 8), np.float32)
    packed = pack((x, out, out[:, ::2]))
    given = copied(packed)
    assert destinations.found(packed, given, ["n", "<f4", [6, 8], 0, 192], given[1]) == {}
    packed = pack((x, out))
    given = copied(packed)
    assert destinations.found(packed, given, ["n", "<f4", [6, 8], 0, 192], given[1]) == {1: (0, 192)}


def test_an_input_is_packed_alike_again() -> None:
    x = base()
    packed = pack((x[:, ::2], x))
    again = pack(copied(packed))
    assert values.text(packed) == values.text(again)
    assert bytes(packed) == bytes(again)


def test_where_arrays_happen_to_lie_changes_nothing_of_what_is_said_of_them() -> None:
    """A call's text is compared with that of others: its arrays are made before the clock where it is the same."""
    whole = np.arange(2000.0)
    texts = {
        values.text(values.pack((whole[one : one + 3], [whole[two : two + 5]], whole[1500:1600:2])))
        for one, two in ((0, 1000), (1000, 0), (1200, 1700))
    }
    assert len(texts) == 1
