"""Recorded tensors: the safetensors format, read by ourselves."""

from __future__ import annotations

import array
import json
import struct
from typing import Any

import pytest

from kbslurm_eval.shared import recorded


def file_of(rows: dict[str, Any], data: bytes) -> bytes:
    head = json.dumps(rows).encode()
    return struct.pack("<Q", len(head)) + head + data


def test_tensors_are_read_by_name() -> None:
    data = struct.pack("<3i", 1, -2, 3) + struct.pack("<2d", 0.5, 1.5)
    made = file_of(
        {
            "__metadata__": {"by": "a test"},
            "x": {"dtype": "I32", "shape": [3], "data_offsets": [0, 12]},
            "y": {"dtype": "F64", "shape": [2, 1], "data_offsets": [12, 28]},
        },
        data,
    )
    assert recorded.unpacked(recorded.packed(made)) == made
    found = recorded.tensors(made)
    assert list(array.array("i", bytes(memoryview(found["x"]).cast("B")))) == [1, -2, 3]
    assert bytes(memoryview(found["y"]).cast("B")) == data[12:]
    read = recorded.reader({"a.safetensors": recorded.packed(made)}, "cpu")
    assert set(read("a.safetensors")) == {"x", "y"}
    with pytest.raises(recorded.NotRecorded, match=r"isn't a \.safetensors file of this problem"):
        read("b.safetensors")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\0" * 3, "shorter than a header"),
        (struct.pack("<Q", 1 << 40) + b"{}", "longer than it may be"),
        (struct.pack("<Q", 2) + b"[[", "isn't JSON"),
        (struct.pack("<Q", 2) + b"[]", "isn't a table"),
        (file_of({"x": {"dtype": "I32"}}, b""), "without dtype, shape and place"),
        (file_of({"x": {"dtype": "Q4", "shape": [1], "data_offsets": [0, 4]}}, b"1234"), "unknown dtype Q4"),
        (file_of({"x": {"dtype": "I32", "shape": [-1], "data_offsets": [0, 4]}}, b"1234"), "invalid shape"),
        (file_of({"x": {"dtype": "I32", "shape": [2], "data_offsets": [0, 4]}}, b"1234"), "don't match its shape"),
        (file_of({"x": {"dtype": "I32", "shape": [1], "data_offsets": [4, 8]}}, b"12345678"), "a gap or an overlap"),
        (file_of({"x": {"dtype": "I32", "shape": [1], "data_offsets": [0, 4]}}, b"12345678"), "belong to no tensor"),
        (file_of({"x": {"dtype": "I32", "shape": [1], "data_offsets": [0, 9]}}, b"1234"), "don't match its shape"),
    ],
)
def test_a_faulty_file_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(recorded.NotRecorded, match=says):
        recorded.header(data)


def test_what_unpacks_to_more_than_it_may_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = recorded.packed(b"\0" * 5000)
    monkeypatch.setattr(recorded, "CAP", 4999)
    with pytest.raises(recorded.NotRecorded, match="larger than"):
        recorded.unpacked(text)
    with pytest.raises(recorded.NotRecorded, match="can't be unpacked"):
        recorded.unpacked("!!")
