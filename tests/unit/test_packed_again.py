"""Inputs like one that was packed before are packed by copying what their arrays contain, to the very same bytes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbslurm_eval.shared import packed_again, values

RANDOM = np.random.default_rng(7)


def packed(value: Any, *, apart: bool = False) -> bytes:
    return bytes(values.pack_into(value, lambda size: memoryview(bytearray(b"x" * size)), apart=apart))


def anew(value: Any, *, apart: bool = False) -> bytes:
    packed_again._SEEN.clear()
    return packed(value, apart=apart)


def some(*shape: int, kind: str = "f4") -> Any:
    return (RANDOM.random(shape) * 100).astype(kind)


ALIKE = [
    lambda: some(3),
    lambda: (some(85), some(85), np.zeros(85, "f4")),
    lambda: [some(2, 3), {"a": some(5, kind="i2"), "b": ("text", None, True, 3, 0.5)}],
    lambda: {"x": some(1, 4, 1), (1, "k"): some(4, 1), 7: some(1, kind="u1")},
    lambda: (some(2, kind="c8"), some(3, kind="?"), some(3, kind=">i4"), some(2, kind="f2"), np.array(some(1)[0])),
    lambda: ([some(2)] * 1, [1, 2, 3], (1.5, 2, 3, 4, 5)),
    lambda: (np.array(["one", "twelve"]), np.array([3], "M8[s]")),
]


@pytest.mark.parametrize("make", ALIKE)
def test_the_second_of_its_kind_is_packed_to_the_same_bytes(make: Any) -> None:
    packed_again._SEEN.clear()
    packed(make())
    assert len(packed_again._SEEN) == 1, "it is one of those that can be told"
    for _ in range(3):
        value = make()
        again = packed(value)
        assert again == anew(value)
        assert values.copied(again) is not None


DIFFERENT = [
    (some(4), some(5)),
    (some(2, 2), some(4)),
    (some(4), some(4, kind="f8")),
    (some(4, kind="<i4"), some(4, kind=">i4")),
    ((some(2), 1), (some(2), True)),
    ((some(2), 1), (some(2), 1.0)),
    ((some(2), 0.0), (some(2), -0.0)),
    ((some(2), "a"), (some(2), "b")),
    ((some(2), None), (some(2), False)),
    ((some(2),), [some(2)]),
    ({"a": some(2)}, {"b": some(2)}),
    ({"a": some(2), "b": some(2)}, {"b": some(2), "a": some(2)}),
    ({1: some(2)}, {True: some(2)}),
    ((some(2), [1, 2, 3]), (some(2), [1, 2, 3, 4])),
    (some(3, 2), some(2, 3).T),
    ((some(2, 3), some(2, 3)), (some(2, 3), some(3, 2).T)),
    (np.array(["ab"]), np.array(["abc"])),
]


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_what_differs_in_more_than_its_arrays_is_told_apart(first: Any, second: Any) -> None:
    expected = [anew(first), anew(second)]
    packed_again._SEEN.clear()
    assert [packed(first), packed(second)] == expected
    packed_again._SEEN.clear()
    assert [packed(second), packed(first)] == expected[::-1]


def shared() -> list[Any]:
    whole = some(12)
    return [(whole[:8], whole[4:]), (whole, whole), (whole, whole[::2]), (whole.reshape(3, 4), whole.reshape(4, 3).T)]


@pytest.mark.parametrize("number", range(4))
def test_arrays_that_share_memory_still_do(number: int) -> None:
    packed_again._SEEN.clear()
    apart = tuple(np.array(one) for one in shared()[number])
    packed(apart)  # of the same shapes
    first, second = values.copied(packed(shared()[number]))
    first[...] = 1
    assert (np.asarray(second) == 1).any(), "whoever writes into one sees it in the other"


def test_numbers_that_stand_apart_are_told_anew() -> None:
    packed_again._SEEN.clear()
    for number in (1, 2, 2.5, True):
        value = (some(3), number, "n")
        assert packed(value, apart=True) == anew(value, apart=True)
    assert not packed_again._SEEN
    packed((some(3), "n"))
    packed((some(3), "n"), apart=True)
    assert len(packed_again._SEEN) == 2


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(0, "f4"),
        (np.zeros(0), some(2)),
        some(4, 4)[:, ::2],
        np.array([(1.0, 2.0)], "f4,f4")["f0"].view(np.recarray),
        (some(2), b"bytes"),
        (some(2), [1, 2, 3, 4]),
        (some(2), [1.0, 2.0, 3.0, 4.0]),
        (some(2), np.float32(1)),
        (some(2), 1j),
        3,
        [],
        {"a": []},
    ],
)
def test_whatever_else_there_is_is_looked_at_each_time(value: Any) -> None:
    assert anew(value) == packed(value)
    assert not packed_again._SEEN


def test_what_cant_be_sent_is_refused_every_time() -> None:
    endless: list[Any] = [some(2)]
    endless.append(endless)
    for _ in range(2):
        for value in (
            endless,
            np.array([object()]),
            (some(2), object()),
            np.ma.masked_array([1.0, 2.0], [False, True]),
        ):
            with pytest.raises(values.Unsendable):
                packed(value)


def test_no_more_are_remembered_than_a_run_has_cases() -> None:
    packed_again._SEEN.clear()
    for n in range(1, 3 * packed_again.MOST):
        assert packed(one := some(n)) == values.pack(one)
    assert len(packed_again._SEEN) <= packed_again.MOST


@pytest.mark.torch
def test_tensors_are_packed_again_to_the_same_bytes() -> None:
    script = str(Path(__file__).with_name("packed_again_of_torch.py"))
    python = os.environ["KBSLURM_TORCH_PYTHON"]
    done = subprocess.run([python, "-W", "ignore", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "all are the same\n", done.stderr
