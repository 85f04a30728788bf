"""Values like one that was packed before: of these nothing is looked at but what tells that they are alike, and what
their arrays contain is copied. A case's inputs are alike from call to call, and telling anew what each is made of takes
several times as long as that where they are small.

Only for arrays of the host, each dense and in memory of its own, in lists, tuples and dictionaries, besides numbers,
texts and None that are the same in both.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ALIGN = 64  # of a block
MOST = 64  # kinds of values that are remembered
MANY = 64  # arrays and other parts of a value; of more, each takes its share of what is spared
DEEP = 8
NUMBERS = frozenset((bool, int))


class PackedAgain:
    """Values that are alike, as the first of them was packed."""

    __slots__ = ("_head", "_places", "_size", "is_all")

    def __init__(self, packed: memoryview, arrays: list[Any]) -> None:
        """Its arrays lie one behind another, in the order in which they are met."""
        start, self._size = int.from_bytes(packed[8:16], "little"), len(packed)
        self._head = bytes(packed[:start])
        self._places: list[tuple[int, int, int]] = []
        for array in arrays:
            end = start + array.nbytes
            self._places.append((start, end, start := -(-end // ALIGN) * ALIGN))
        self.is_all = start == self._size  # of what is in it

    def pack(self, arrays: list[Any], room: Callable[[int], memoryview]) -> memoryview:
        """One more, with these arrays."""
        whole = room(self._size)
        whole[: len(self._head)] = self._head
        for array, (at, end, until) in zip(arrays, self._places, strict=True):
            _copy(array, whole, at, end)
            if end < until:
                whole[end:until] = bytes(until - end)
        return whole


def alike(value: Any, *, apart: bool = False) -> tuple[Any, list[Any]] | None:
    """What all values that are packed alike have in common, and this one's arrays; None for those that have to be
    looked at each time. `apart`: single numbers stand behind the arrays."""
    arrays: list[Any] = []
    spans: list[tuple[int, int]] = []
    told = _told(value, arrays, spans, apart, 0)
    if told is None or not 0 < len(arrays) <= MANY:
        return None
    spans.sort()
    free = 0
    for at, end in spans:
        if at < free:  # two share memory, and must on the other side
            return None
        free = end
    return told, arrays


def known(found: tuple[Any, list[Any]], *, apart: bool = False) -> PackedAgain | None:
    """How a value of which that was found is packed, if there was one like it."""
    return _SEEN.get((found[0], apart))


def remember(found: tuple[Any, list[Any]], packed: memoryview, *, apart: bool = False) -> None:
    """This is how such a value is packed."""
    again = PackedAgain(packed, found[1])
    if again.is_all:
        if len(_SEEN) >= MOST:
            _SEEN.clear()
        _SEEN[found[0], apart] = again


def _told(value: Any, arrays: list[Any], spans: list[tuple[int, int]], apart: bool, depth: int) -> Any:
    kind = type(value)
    if (numpy := sys.modules.get("numpy")) is not None and kind is numpy.ndarray:
        if not (value.flags.c_contiguous and value.nbytes):
            return None
        at = value.__array_interface__["data"][0]
        told = kind, value.dtype, value.shape, value.strides
    elif (torch := sys.modules.get("torch")) is not None and kind is torch.Tensor:
        if value.layout is not torch.strided or value.device.type != "cpu" or value.is_conj() or value.is_neg():
            return None
        if not (value.is_contiguous() and value.numel()):
            return None
        at = value.data_ptr()
        told = kind, value.dtype, tuple(value.shape), value.stride()
    elif kind is tuple or kind is list or kind is dict:
        return _told_parts(kind, value, arrays, spans, apart, depth)
    elif kind is float:
        return None if apart else (kind, repr(value))  # zero has two signs
    elif kind in NUMBERS:
        return None if apart else (kind, value)
    else:
        return (kind, value) if value is None or kind is str else None
    arrays.append(value)
    spans.append((at, at + value.nbytes))
    return told


def _told_parts(kind: Any, value: Any, arrays: list[Any], spans: list[tuple[int, int]], apart: bool, depth: int) -> Any:
    if len(value) > MANY or depth > DEEP:
        return None
    if kind is list and len(value) >= 4 and type(value[0]) in (int, float):  # it may be one block
        return None
    found = [kind]
    for part in value.items() if kind is dict else value:
        told = _told(part, arrays, spans, apart, depth + 1)
        if told is None:
            return None
        found.append(told)
    return tuple(found)


def _copy(array: Any, whole: memoryview, at: int, end: int) -> None:
    if hasattr(array, "untyped_storage"):
        torch = sys.modules["torch"]
        flat = array.detach().reshape(-1).view(torch.uint8)
        torch.frombuffer(whole, dtype=torch.uint8, count=end - at, offset=at).copy_(flat)
    else:
        whole[at:end] = array.reshape(-1).view(sys.modules["numpy"].uint8)


_SEEN: dict[Any, PackedAgain] = {}
