"""Arrays that share memory, or whose elements don't lie one behind another, on their way to a runner.

What shares memory travels as one block, and each array says where it lies in it: a submission that writes into one sees
it in the others, as where it was made. Bytes between elements, which nobody was given, are zeros.

In a node of such an array, the order of its dimensions is a table: `offset` in the block and its `size` in bytes, and
`strides`, in bytes for numpy and in elements for torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ALIGN = 16  # of the first byte that a block has: no element type needs more


class _Met:
    """An array that is packed, its node, how it is packed where it is alone, and the memory that it reaches into."""

    __slots__ = ("alone", "device", "high", "low", "node", "value")

    def __init__(self, value: Any, node: list[Any], alone: Callable[[], Any] | None) -> None:
        self.value, self.node, self.alone = value, node, alone
        self.device = str(value.device) if hasattr(value, "untyped_storage") else "cpu"
        self.low, self.high = _reach(value)


class Arrays:
    """The arrays of a value, which get their blocks when all are known."""

    def __init__(self) -> None:
        self._met: list[_Met] = []

    def add(self, value: Any, node: list[Any], alone: Callable[[], Any] | None) -> list[Any]:
        """One more; `alone` gives its bytes if it is dense. Its node is complete once `lay` has been called."""
        self._met.append(_Met(value, node, alone))
        return node

    def lay(self, put: Callable[[Any], int], away: Callable[[Any, list[Any]], bool] | None = None) -> None:
        """A block for each, or for all that share memory. `away`: who takes what is alone and lies elsewhere."""
        places = {id(one.node): n for n, one in enumerate(self._met)}
        # in the order in which they were met: where they happen to lie in memory would make each call's text another
        for group in sorted(_groups(self._met), key=lambda group: min(places[id(one.node)] for one in group)):
            first = group[0]
            if len(group) == 1 and first.alone is not None:
                if away is None or not away(first.value, first.node):
                    first.node[3] = put(first.alone())
            else:
                _lay_together(group, put)


def strides_of(value: Any) -> list[int]:
    """As its library counts them."""
    return [int(n) for n in (value.stride() if hasattr(value, "untyped_storage") else value.strides)]


def numpy_array(np: Any, node: list[Any], buffer: memoryview, start: int) -> Any:
    """The array of this node over a block of the buffer."""
    _, dtype, shape, at, told = node
    return np.ndarray(shape, dtype, buffer, start + at + told["offset"], tuple(told["strides"]))


def tensor(torch: Any, node: list[Any], flat: Any) -> Any:
    """The tensor of this node in the storage of a flat one, which has the block's bytes."""
    _, name, shape, _, told, _ = node
    made = torch.empty(0, dtype=getattr(torch, name), device=flat.device)
    begins = flat.storage_offset() + told["offset"]
    return made.set_(flat.untyped_storage(), begins // made.element_size(), shape, told["strides"])


def _reach(value: Any) -> tuple[int, int]:
    """The first byte of its memory and the one behind the last."""
    if hasattr(value, "untyped_storage"):
        at, width = int(value.data_ptr()), int(value.element_size())
        steps = [width * n for n in strides_of(value)]
    else:
        at, width = int(value.__array_interface__["data"][0]), int(value.itemsize)
        steps = strides_of(value)
    if 0 in value.shape:
        return at, at
    ends = [(size - 1) * step for size, step in zip(value.shape, steps, strict=True)]
    return at + sum(end for end in ends if end < 0), at + sum(end for end in ends if end > 0) + width


def _groups(met: list[_Met]) -> Iterator[list[_Met]]:
    """Those that reach into each other's memory, together."""
    group: list[_Met] = []
    high = 0
    for one in sorted(met, key=lambda one: (one.device, one.low)):
        if group and (one.device != group[0].device or one.low >= high):
            yield group
            group, high = [], 0
        group.append(one)
        high = max(high, one.high)
    if group:
        yield group


def _lay_together(group: list[_Met], put: Callable[[Any], int]) -> None:
    low = min(one.low for one in group) // ALIGN * ALIGN
    block = bytearray(max(one.high for one in group) - low)
    for one in group:
        _copied(one, block, one.low - low)
    at = put(block)
    for one in group:
        steps = strides_of(one.value)
        first = _first(one) - low
        one.node[2:5] = [list(one.value.shape), at, {"offset": first, "size": len(block), "strides": steps}]


def _first(one: _Met) -> int:
    """Where its first element lies: the last in memory along a dimension that goes backwards."""
    if hasattr(one.value, "untyped_storage"):
        return int(one.value.data_ptr())
    return int(one.value.__array_interface__["data"][0])


def _copied(one: _Met, block: bytearray, at: int) -> None:
    """Its elements to their places; of those that are the same element many times, once."""
    value, steps = one.value, strides_of(one.value)
    value = value[tuple(slice(0, 1) if step == 0 else slice(None) for step in steps)]
    if hasattr(value, "untyped_storage"):
        import torch

        width = value.element_size()
        flat = torch.frombuffer(block, dtype=value.dtype, count=(one.high - one.low) // width, offset=at)
        flat.as_strided(value.shape, steps).copy_(value.detach())
    else:
        import numpy as np

        np.ndarray(value.shape, value.dtype, block, at + _first(one) - one.low, tuple(steps))[...] = value
