"""Answers that are written where they are read.

A problem in destination-passing style answers in an array of its input. Its submissions get that array over the link's
output, so none of them pays for a copy, and none can gain by sparing it. The judge sees by its own reference which
arrays are destinations: the answer is the very array that came with the input.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kbslurm_eval.shared import values

Places = dict[int, tuple[int, int]]  # which array of the input: where in the output, and how many bytes


@dataclass(frozen=True, kw_only=True)
class Payload:
    """A packed input in parts, with nothing between them, and what destinations contain before the call."""

    parts: tuple[tuple[int, bytes | memoryview], ...]
    size: int
    laid: tuple[tuple[int, memoryview], ...] = ()
    room: int = 0  # how far into the output destinations reach

    def joined(self) -> bytes:
        """All of it in one piece."""
        whole = bytearray(self.size)
        for at, part in self.parts:
            whole[at : at + len(part)] = part
        return bytes(whole)

    def head(self) -> Payload:
        """The same without any array's bytes, in as large a room."""
        return Payload(parts=self.parts[:1], size=self.size, room=self.room)


def plain(packed: bytes | memoryview) -> Payload:
    """A packed value without destinations."""
    start = struct.unpack_from("<QQ", packed, 0)[1]
    view = memoryview(packed)
    return Payload(parts=((0, view[:start]), (start, view[start:])), size=len(packed))


def found(packed: bytes | memoryview, data: Any, tree: Any, answer: Any) -> Places:
    """Which arrays of this packed input are destinations. `data` is the unpacked input that the reference was given,
    `answer` what it returned, `tree` that of the answer's layout."""
    given: dict[tuple[Any, ...], list[int]] = {}
    for number, (node, array) in enumerate(_arrays(values.tree(packed), data)):
        if node[4] == sorted(node[4]) and (place := _place(array)) is not None:
            given.setdefault((str(node[:3]), *place), []).append(number)
    places: Places = {}
    for node, array in _arrays(tree, answer):
        place = _place(array)
        for number in given.get((str(node[:3]), *place), []) if place is not None else []:
            if number in places:  # one array as two answers
                return {}
            places[number] = (node[3], node[4])
    return places


def placed(packed: bytes | memoryview, places: Places) -> Payload:
    """The input with its destinations in the output."""
    if not places:
        return plain(packed)
    start = struct.unpack_from("<QQ", packed, 0)[1]
    head, moved = _moved(values.text(packed), tuple(places.items()))
    view, begin = memoryview(packed), len(head)
    laid = tuple((place, view[start + at : start + at + size]) for at, size, place in moved)
    gone = sorted((start + at, start + at + size) for at, size, _ in moved)
    parts: list[tuple[int, bytes | memoryview]] = [(0, head)]
    at = start
    for low, high in [*gone, (len(packed), len(packed))]:
        if low > at:
            parts.append((begin + at - start, view[at:low]))
        at = high
    room = max(at + size for at, size in places.values())
    return Payload(parts=tuple(parts), size=begin + len(packed) - start, laid=laid, room=room)


@functools.lru_cache(maxsize=64)  # a case's inputs have the same text, call after call
def _moved(
    text: bytes, places: tuple[tuple[int, tuple[int, int]], ...]
) -> tuple[bytes, tuple[tuple[int, int, int], ...]]:
    """What stands before the arrays if these are in the output, and those: where each was among the arrays, its size,
    and where it is."""
    wanted, gone, numbers = dict(places), list[tuple[int, int, int]](), itertools.count()

    def moved(node: Any) -> Any:
        match node:
            case ["l" | "t" as kind, inner]:
                return [kind, [moved(item) for item in inner]]
            case ["d", pairs]:
                return ["d", [[key, moved(item)] for key, item in pairs]]
            case ["G", _]:
                next(numbers)
                return node
            case ["n" | "T", *_] if (place := wanted.get(next(numbers))) is not None:
                gone.append((node[3], place[1], place[0]))
                return ["O", [*node[:3], place[0], *node[4:]]]
            case _:
                return node

    told = json.dumps(moved(json.loads(text)), separators=(",", ":")).encode()
    begin = -(-(16 + len(told)) // values.ALIGN) * values.ALIGN
    return (struct.pack("<QQ", len(told), begin) + told).ljust(begin, b"\0"), tuple(gone)


def _arrays(node: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """The arrays of a tree, each with the node that describes it, in the order in which they were packed."""
    match node:
        case ["l" | "t", inner]:
            for item, part in zip(inner, value, strict=True):
                yield from _arrays(item, part)
        case ["d", pairs]:
            for key, item in pairs:
                yield from _arrays(item, value[tuple(key[1]) if isinstance(key, list) else key])
        case ["n" | "T" | "A", *_]:
            yield node, value
        case ["G", inner]:
            yield inner, value
        case _:
            pass


def _place(array: Any) -> tuple[int, int] | None:
    """Where a dense array of this process's or a device's memory begins, and its size; None for anything else."""
    match values.array_kind(array):
        case "numpy" if array.flags.c_contiguous and array.nbytes:
            return int(array.__array_interface__["data"][0]), int(array.nbytes)
        case "torch" if array.device.type in ("cpu", "cuda") and array.is_contiguous() and array.numel():
            return int(array.data_ptr()), int(array.numel() * array.element_size())
        case None if (told := values.interface_of(array)) is not None and told.get("strides") is None:
            size = math.prod(told["shape"]) * int(told["typestr"][2:])
            return (int(told["data"][0]), size) if size else None
        case _:
            return None
