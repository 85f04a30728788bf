"""Run by test_packed_again.py with a Python that has torch: tensors are packed again to the same bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "eval"))

from kbslurm_eval.shared import packed_again, values


def packed(value: Any) -> bytes:
    return bytes(values.pack_into(value, lambda size: memoryview(bytearray(b"x" * size))))


def some(*shape: int, kind: Any = torch.float32) -> Any:
    return (torch.rand(shape) * 100).to(kind)


ALIKE: list[Callable[[], Any]] = [
    lambda: some(5),
    lambda: (some(3, 4), some(1, 3, 1, kind=torch.bfloat16), some(2, kind=torch.bool), some(2, kind=torch.int64)),
    lambda: {"a": some(3, kind=torch.complex64), "b": [some(2, kind=torch.float16), torch.tensor(1.5), "n", 4]},
    lambda: (some(3, kind=torch.float8_e4m3fn), some(2).requires_grad_()),
    lambda: (some(4, 6)[:2], some(1 << 20)),
    lambda: (some(6).numpy(), some(6)),
]
for make in ALIKE:
    packed_again._SEEN.clear()
    packed(make())
    assert len(packed_again._SEEN) == 1, make()
    for _ in range(3):
        value = make()
        again = packed(value)
        packed_again._SEEN.clear()
        assert again == packed(value), value
        values.copied(again)

OTHERWISE: list[Any] = [
    some(4, 4).t(),
    some(4, 4)[:, 1:],
    torch.zeros(0),
    torch.nn.Parameter(some(2)),
    some(2, kind=torch.complex64).conj(),
    some(3).to_sparse(),
    (whole := some(8), whole[2:]),
    (whole, whole.numpy()),
]
for value in OTHERWISE:
    packed_again._SEEN.clear()
    try:
        packed(value)
    except (values.Unsendable, RuntimeError):
        pass
    assert not packed_again._SEEN, value
print("all are the same")
