"""Operations and bytes counted from the shapes of arrays."""

from __future__ import annotations

import array
import json
import struct
from typing import Any

import numpy as np
import pytest

from kbslurm_eval.judge import counted_work
from kbslurm_eval.judge.counted_work import DoesntFit
from kbslurm_eval.shared import wire
from kbslurm_eval.shared.layouts import Layout
from kbslurm_eval.shared.values import pack


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    return [np.zeros(shape, np.float32) for shape in shapes]


def counted(name: str, given: Any, answered: Any) -> int:
    return counted_work.operations(name, pack(given), Layout.of(answered).tree)


@pytest.mark.parametrize(
    ("name", "given", "answered", "flops"),
    [
        ("matmul", [(3, 5), (5, 7)], (3, 7), 2 * 3 * 5 * 7),
        ("matmul", [(3, 5), (7, 5)], (3, 7), 2 * 3 * 5 * 7),
        ("matmul", [(5, 3), (7, 5)], (3, 7), 2 * 3 * 5 * 7),
        ("matmul", [(4, 3, 5), (5, 7)], (4, 3, 7), 2 * 4 * 3 * 5 * 7),
        ("matmul", [(4, 1, 3, 5), (2, 5, 7)], (4, 2, 3, 7), 2 * 4 * 2 * 3 * 5 * 7),
        ("matmul", [(3, 5), (5,)], (3,), 2 * 3 * 5),
        ("elementwise", [(4, 6)], (4, 6), 24),
        ("elementwise", [(4, 6), (6,), ()], (4, 6), 24),
        ("reduction", [(4, 6)], (4,), 20),
        ("reduction", [(4, 6)], (4, 1), 20),
        ("reduction", [(4, 6)], (), 23),
        ("attention", [(2, 8, 5, 4), (2, 2, 9, 4), (2, 2, 9, 3)], (2, 8, 5, 3), 2 * 2 * 8 * 5 * 9 * 7),
        ("causal_attention", [(8, 5, 4)] * 3, (8, 5, 4), 2 * 8 * 15 * 8),
        ("conv", [(2, 6, 10, 10), (8, 3, 3, 5), (8,)], (2, 8, 8, 6), 2 * 2 * 8 * 8 * 6 * 3 * 15),
        ("conv_transpose", [(2, 6, 10), (6, 4, 3)], (2, 8, 12), 2 * 2 * 6 * 10 * 4 * 3),
    ],
)
def test_operations(name: str, given: list[tuple[int, ...]], answered: tuple[int, ...], flops: int) -> None:
    assert counted(name, arrays(*given), *arrays(answered)) == flops


@pytest.mark.parametrize(
    ("name", "given", "answered"),
    [
        ("matmul", [(3, 5), (6, 7)], (3, 7)),
        ("matmul", [(2, 3, 5), (4, 5, 7)], (2, 3, 7)),
        ("matmul", [(3, 5)], (3, 7)),
        ("elementwise", [(4, 6)], (4,)),
        ("elementwise", [], (4,)),
        ("reduction", [(4, 6)], (4, 6)),
        ("reduction", [(4, 6)], (5,)),
        ("attention", [(2, 8, 5, 4), (2, 3, 9, 4), (2, 3, 9, 4)], (2, 8, 5, 4)),
        ("attention", [(8, 5, 4), (8, 9, 4)], (8, 5, 4)),
        ("conv", [(2, 6, 10, 10), (8, 4, 3, 3)], (2, 8, 8, 8)),
        ("conv", [(2, 6), (8, 6)], (2, 8)),
        ("conv_transpose", [(2, 6, 10), (5, 4, 3)], (2, 8, 12)),
    ],
)
def test_other_shapes_are_refused_with_what_they_are(
    name: str, given: list[tuple[int, ...]], answered: tuple[int, ...]
) -> None:
    with pytest.raises(DoesntFit, match=r"arrays of .* aren't those of (an? |attention)"):
        counted(name, arrays(*given), *arrays(answered))


def test_lists_and_what_is_inside_of_tables_count_as_arrays() -> None:
    assert counted("elementwise", {"x": [1.0] * 9, "n": 3}, [2.0] * 9) == 9
    assert counted("reduction", [array.array("d", range(9)), 3], array.array("d", [1.0])) == 8
    x = np.zeros((4, 6), order="F")
    assert counted("matmul", {"a": x, "b": [np.zeros((6, 3))]}, np.zeros((4, 3))) == 2 * 4 * 6 * 3


def test_bytes_between_a_view_s_elements_arent_counted() -> None:
    x = np.zeros((8, 8))
    assert counted_work.gaps(pack([x, x.T])) == 0
    assert counted_work.gaps(pack([x[:, ::2]])) == 8 * 8 * 8 - 8 - 8 * 8 * 4
    assert counted_work.gaps(pack([x[:, ::2], x])) == 0
    assert counted_work.gaps(pack([np.broadcast_to(x[0], (5, 8))])) == 0


def test_every_operation_that_may_be_named_can_be_counted() -> None:
    assert set(wire.OPERATIONS) == set(counted_work.COUNTED) == set(counted_work.ARRAYS)
    assert wire.counted_operation("shapes( conv )") == "conv"
    assert [wire.counted_operation(one) for one in ("shapes", "shapes(odd)", "conv", None, 3)] == [None] * 5


def test_arrays_on_a_device_count_by_their_shapes_too() -> None:
    """Those of a problem that made them there: torch's, and another library's."""
    left, right = ["G", ["T", "float16", [8, 4], 0, [0, 1], "cuda"]], ["G", ["A", "<f2", [4, 16], 256, [0, 1]]]
    text = json.dumps(["t", [left, right]]).encode()
    packed = struct.pack("<QQ", len(text), 16 + len(text)) + text
    assert counted_work.operations("matmul", packed, ["A", "<f2", [8, 16], 0, 256]) == 2 * 8 * 4 * 16
