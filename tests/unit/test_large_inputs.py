"""Large inputs on the judge's side: memory that is used again, inputs that are made once, and what null calls carry."""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kbslurm_eval.judge import reference as judged
from kbslurm_eval.judge.buffers import LEAST, Buffers
from kbslurm_eval.judge.kept_inputs import KeptInput, same
from kbslurm_eval.judge.reference import Case, Reference
from kbslurm_eval.shared import timing, values, wire

LARGE = 400_000  # numbers of 8 bytes
PROBLEM = """
import numpy as np

MADE, SEEN = [], []


def generate_input(n, seed):
    MADE.append(seed)
    return {made}


def ref_kernel(data):
    return data[0] * 2


def check_implementation(data, output):
    SEEN.append(data[0])
    good = bool(np.array_equal(output, data[0] * 2))
    data[0][:] = 0
    return good, ""
"""
FRESH = "np.random.default_rng(seed).random(n), np.arange(n)"
FIXED = "np.arange(n) * 0.5, np.arange(n)"


def _reference(made: str, monkeypatch: pytest.MonkeyPatch) -> Reference:
    monkeypatch.delitem(sys.modules, "reference", raising=False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    told: dict[str, Any] = {
        "version": wire.WIRE_VERSION, "token": "t", "attempt": 1, "nonce": "n", "mode": "test", "problem": "p",
        "problem_digest": "d" * 64, "lang": "py", "gpu": "cpu", "files": {"reference.py": PROBLEM.format(made=made)},
        "runner_files": [], "source": "", "tests": [], "benchmarks": [], "hidden": [], "secret_seed": "s",
    }  # fmt: skip
    return Reference(wire.Manifest(**told))


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reference]:
    yield _reference(FRESH, monkeypatch)
    sys.modules.pop("reference", None)


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reference]:
    yield _reference(FIXED, monkeypatch)
    sys.modules.pop("reference", None)


CASE = Case(index=0, params={"n": LARGE, "seed": 1})


def test_memory_is_used_again_once_nothing_refers_to_it() -> None:
    buffers = Buffers()
    first = buffers.room(LEAST)
    held = np.frombuffer(first, np.uint8)
    held[:] = 7
    del first
    second = buffers.room(LEAST)
    second[:] = bytes(len(second))
    assert set(held) == {7}  # somebody's array still lies there
    address = _address(second)
    del second
    assert _address(buffers.room(LEAST)) == address
    at = _address(held)
    del held
    assert at in {_address(one) for one in [buffers.room(LEAST), buffers.room(LEAST)]}


def _address(view: Any) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def test_no_more_idle_memory_is_kept_than_allowed() -> None:
    buffers = Buffers(idle_cap=8 << 20)
    for size in (2 << 20, 5 << 20, 20 << 20, 3 << 20):
        buffers.room(size)
    assert sum(len(one) for one in buffers._all) <= 8 << 20
    held = [buffers.room(6 << 20) for _ in range(3)]  # what is in use is never taken away
    assert len({_address(one) for one in held}) == 3


def test_inputs_that_three_seeds_make_alike_are_made_once(fixed: Reference) -> None:
    made = sys.modules["reference"].__dict__["MADE"]
    packed = [bytes(fixed.prepare(CASE, seed).packed) for seed in range(3, 12)]
    assert made == [3, 4, 5]
    assert len(set(packed)) == 1
    assert packed[0] == values.pack(fixed.input(CASE, 77))


def test_what_a_check_writes_to_such_an_input_is_not_seen_by_the_next_call(fixed: Reference) -> None:
    for seed in range(3, 12):
        prepared = fixed.prepare(CASE, seed)
        assert fixed.check(prepared, np.arange(LARGE) * 1.0, last=True) == (True, "")


def test_inputs_that_seeds_change_are_made_for_each_call(fresh: Reference) -> None:
    packed = [bytes(fresh.prepare(CASE, seed).packed) for seed in range(3, 9)]
    assert len(set(packed)) == 6
    assert not any(one.packed for one in fresh._inputs.values())  # and none is held


@pytest.mark.parametrize("late", [b"\1", b"\0"])
def test_one_byte_that_no_sample_sees_keeps_an_input_from_being_kept(late: bytes) -> None:
    size, kept = 4 << 20, KeptInput()
    other = bytearray(size)
    other[size // 512 + 100] = late[0]  # between two samples
    assert not kept.look(bytes(size), 1, room=True)
    assert kept.look(bytes(size), 2, room=True)
    kept.look(bytes(other), 3, room=True)
    assert kept.is_fixed is (late == b"\0")
    assert kept.varies is (late == b"\1")


def test_the_same_seed_again_says_nothing() -> None:
    kept = KeptInput()
    for _ in range(9):
        kept.look(bytes(4096), 1, room=True)
    assert not kept.is_fixed


def test_sameness_is_of_every_byte() -> None:
    one = bytearray(3 << 20)
    assert same(bytes(one), memoryview(one))
    one[-1] = 1
    assert not same(bytes(3 << 20), memoryview(one))
    assert not same(b"a", b"aa")


def test_an_input_is_the_checks_own_only_where_nobody_needs_it_any_more(fresh: Reference) -> None:
    prepared = fresh.prepare(CASE, 3)
    right = fresh.answer(prepared)
    for _ in range(2):
        assert fresh.check(prepared, right) == (True, "")  # the check clears what it was given
    bad = right.copy()
    bad[5] = math.nan
    assert not fresh.check(prepared, bad, last=True)[0]
    assert fresh.check(prepared, right, last=True) == (True, "")
    assert not fresh.check(prepared, right)[0]  # it was given away


def test_an_array_that_a_check_kept_is_not_written_over(fresh: Reference) -> None:
    seen = sys.modules["reference"].__dict__["SEEN"]
    for seed in range(3, 9):
        prepared = fresh.prepare(CASE, seed)
        right = fresh.answer(prepared)
        fresh.check(prepared, right, last=True)
        seen[-1][:] = seed
        del prepared, right
    assert [set(one) for one in seen] == [{float(seed)} for seed in range(3, 9)]


def test_null_calls_of_large_inputs_hold_no_memory(fresh: Reference) -> None:
    case = Case(index=0, params={"n": 1_000_000, "seed": 1})
    prepared = fresh.prepare(case, 3, exact=True)
    pattern = prepared.hollow()
    assert pattern.null_payload == prepared.null_payload
    assert isinstance(pattern.packed, memoryview)
    assert isinstance(pattern.packed.obj, mmap.mmap)
    assert not any(pattern.packed[-4096:])
    assert pattern.expected is None
    assert pattern.null_payload.size > judged.NULL_WHOLE_CAP > sum(len(p) for _, p in pattern.null_payload.parts)


def test_a_value_is_packed_into_given_memory_as_on_its_own() -> None:
    value = {"a": np.arange(7), "b": [1, 2, 3, 4], "c": (b"xyz", np.zeros((0, 3)), 5, "t"), "d": np.eye(3)[:, ::2]}
    room = memoryview(bytearray(b"\xff" * 4096))
    assert values.pack_into(value, lambda size: room[:size]) == values.pack(value)


def test_what_null_calls_carry_of_a_large_input_has_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = _reference("np.random.default_rng(seed).random(2 * n), np.arange(n), seed", monkeypatch)
    prepared = drawn.prepare(Case(index=0, params={"n": LARGE, "seed": 1}, apart=True), 77)
    hollow = prepared.hollow()
    assert not any(hollow.packed[len(hollow.packed) // 2 :][:4096]), "nothing of its arrays"
    assert values.single_numbers(hollow.packed) == [
        (at, (77).to_bytes(8, "little")) for at, _ in values.single_numbers(prepared.packed)
    ]
    sys.modules.pop("reference", None)


def test_arrays_told_ahead_are_over_what_comes_late() -> None:
    data: dict[str, Any] = {"a": np.arange(6.0).reshape(2, 3).T, "n": 3, "out": (np.zeros(4, np.float32), None)}
    packed = bytearray(values.pack(data))
    head = bytes(packed[: int.from_bytes(packed[8:16], "little")])
    room = bytearray(len(packed))
    made = values.made_ahead(values.told_ahead(head), memoryview(room), memoryview(bytearray(8)))
    assert not made["a"].any()
    room[:] = packed  # what the judge writes when the clock has started
    assert np.array_equal(made["a"], data["a"])
    assert made["a"].strides == values.copied(bytes(packed))["a"].strides
    assert made["n"] == 3


@pytest.mark.parametrize(
    ("value", "only"),
    [
        ((np.arange(3), {"scale": 0.5, "eps": None}), True),
        ([1.0, 2.0, 3.0, 4.0], False),  # a list's numbers are what a call may change
        ((np.arange(3), [1, 2, 3, 4]), False),
        ((np.arange(3), b"bytes"), False),
        ((np.arange(3), np.float32(3)), False),
    ],
)
def test_only_what_arrays_contain_may_come_late(value: Any, only: bool) -> None:
    assert values.is_arrays(values.tree(values.pack(value))) is only


def test_calls_leave_room_for_making_inputs_and_checking_answers() -> None:
    def calls(share_s: float, whole_s: float) -> int:
        return timing.budgeted_calls(
            calls=30, max_calls=300, target_s=0.5, reference_s=0.01, share_s=share_s, whole_s=whole_s
        )

    assert calls(30.0, 0.5) == 30  # as before where it doesn't bind
    assert calls(10.0, 0.5) == 20
    assert calls(1.0, 4.0) == 3  # what makes an interval at all
