"""What of a call belongs into the device's memory: a packed input without its device arrays, and a layout whose device
arrays have places there.

A node `["G", node]` stands for an array in memory of the judge's that the runner has mapped, `["H", node]` for one that
travels by the link and is put onto the device by the runner itself. Tensors of a device always are of this kind; where
a problem says `arrays: device`, so are numpy arrays, `array.array`, and, for compiled submissions, lists of numbers.
"""

from __future__ import annotations

import array
import itertools
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbslurm_eval.shared import layouts, values

ALIGN = 256  # what allocations of a device are aligned to at least
# where a node of a packed text has its offset
_AT = {"n": 3, "A": 3, "T": 3, "q": 1, "f": 1, "b": 1, "B": 1, "a": 2, "s": 2}


@dataclass(frozen=True, kw_only=True)
class DeviceChoice:
    """Which arrays are the device's. `tensors`: all of them, wherever the judge has them."""

    arrays: bool = False
    native: bool = False
    tensors: bool = False

    def given(self, node: list[Any]) -> bool:
        """Whether this array of an input is."""
        match node[0]:
            case "T":
                return node[5] != "cpu" or self.tensors
            case "A":
                return True
            case "n" | "a":
                return self.arrays
            case "q" | "f":
                return self.arrays and self.native
            case _:
                return False

    def wanted(self, node: list[Any]) -> bool:
        """Whether this array of an output is: its nodes have the same form there."""
        return node[0] in ("T", "A", "n", "a", "q", "f") and self.given(node)


@dataclass(frozen=True, kw_only=True)
class SplitInput:
    """An input in two parts: what goes through the link, and what goes onto the device, where it is to stand."""

    payload: bytes
    blocks: tuple[tuple[int, memoryview], ...]
    size: int

    def pieces(self) -> Iterator[tuple[int, bytes | memoryview]]:
        """What the host has of the device's part as it lies there, piece by piece: blocks, and zeros between them."""
        end = self.blocks[0][0] if self.blocks else self.size
        for at, block in self.blocks:
            if at > end:
                yield end, bytes(at - end)
            yield at, block
            end = at + len(block)
        if end < self.size:
            yield end, bytes(self.size - end)


@dataclass(frozen=True, kw_only=True)
class SplitLayout:
    """A layout in two parts. `pieces`: where a part of the output stands in it, how long it is, and where on the
    device."""

    layout: layouts.Layout
    pieces: tuple[tuple[int, int, int], ...]
    size: int


def split_input(
    packed: bytes | memoryview, choice: DeviceChoice, mark: str = "G", *, away: int = 0
) -> SplitInput | None:
    """The packed input in its two parts; with mark `H` all of it stays in the first. None where nothing is the
    device's. `away`: how much of the device's part was never on the host, and comes first there."""
    start = struct.unpack_from("<QQ", packed, 0)[1]
    tree = values.tree(packed)
    blob = memoryview(packed)[start:]
    found: list[list[Any]] = []
    _walk(tree, found.append)
    if not any(choice.given(node) for node in found):
        return SplitInput(payload=bytes(packed), blocks=(), size=away) if away else None
    ends = sorted({node[_AT[node[0]]] for node in found} | {len(blob)})
    after = dict(zip(ends, [*ends[1:], len(blob)], strict=True))
    kept = _Blocks(values.ALIGN)
    there = _Blocks(ALIGN, away) if mark == "G" else kept
    shared: dict[tuple[int, bool], int] = {}  # where a block was put that several arrays lie in

    def moved(node: list[Any]) -> Any:
        if node[0] not in _AT:
            return node
        index = _AT[node[0]]
        at = node[index]
        block = blob[at : at if _is_empty(node) else after[at]]
        if isinstance(node[-1 if node[0] == "n" else -2], dict) and not (choice.native and choice.given(node)):
            key = at, choice.given(node)
            if key not in shared:
                shared[key] = (there if choice.given(node) else kept).put(block)
            within = [*node[:index], shared[key], *node[index + 1 :]]
            return within if not choice.given(node) else [mark, [*within[:5], "cuda"] if node[0] == "T" else within]
        if not choice.given(node):
            return [*node[:index], kept.put(block), *node[index + 1 :]]
        if choice.native and node[0] in "nT" and node[index + 1] != sorted(node[index + 1]):
            node, block = _dense(node, blob)
        moved_to = [*node[:index], there.put(block), *node[index + 1 :]]
        return [mark, [*moved_to[:5], "cuda"] if node[0] == "T" else moved_to]

    return SplitInput(
        payload=_packed(_rebuilt(tree, moved), kept),
        blocks=tuple(there.blocks) if there is not kept else (),
        size=there.end if there is not kept else 0,
    )


def split_layout(layout: layouts.Layout, choice: DeviceChoice, mark: str = "G") -> SplitLayout | None:
    """The layout in its two parts; with mark `H` all of it stays in the first. None where nothing is the device's."""
    pieces: list[tuple[int, int, int]] = []
    end, hosted = 0, 0

    def moved(node: list[Any]) -> Any:
        nonlocal end, hosted
        if not choice.wanted(node):
            hosted += node[0] != "0"
            return node
        index, size = _AT[node[0]], laid_size(node)
        there = [*node[:index], end if mark == "G" else node[index], *node[index + 1 :]]
        pieces.append((node[index], size, end))
        end = -(-(end + size) // ALIGN) * ALIGN
        return [mark, [*there[:5], "cuda"] if node[0] == "T" else there]

    tree = _rebuilt(layout.tree, moved)
    if not pieces:
        return None
    if mark == "H":
        return SplitLayout(layout=layouts.Layout(tree=tree, size=layout.size), pieces=(), size=0)
    # a layout that has anything on the host keeps its places there
    host = layouts.Layout(tree=tree, size=layout.size if hosted else 0)
    return SplitLayout(layout=host, pieces=tuple(pieces), size=end)


def with_destinations(
    found: SplitInput, places: Mapping[int, tuple[int, int]], pieces: Sequence[tuple[int, int, int]]
) -> tuple[SplitInput, list[tuple[int, int, int]]]:
    """The same with those arrays of the device in the output that are destinations (`destinations.found`), and what has
    to be copied there before the call: from where in the input's part, to where in the output's, how much."""
    there = {at: (to, size) for at, size, to in pieces}
    numbers, laid = itertools.count(), list[tuple[int, int, int]]()

    def placed(node: list[Any]) -> Any:
        if (node[1] if node[0] == "G" else node)[0] not in ("n", "T", "A"):
            return node
        place = places.get(next(numbers))
        if node[0] != "G" or place is None or place[0] not in there:
            return node
        to, size = there[place[0]]
        laid.append((node[1][3], to, size))
        return ["P", [*node[1][:3], to, *node[1][4:]]]

    text = _rebuilt(values.tree(found.payload), placed, objects=False)
    if not laid:
        return found, laid
    start = struct.unpack_from("<QQ", found.payload, 0)[1]
    kept = _Blocks(values.ALIGN)
    kept.put(memoryview(found.payload)[start:])
    return replace(found, payload=_packed(text, kept)), laid


def hosted(packed: bytes | memoryview, fetched: Callable[[list[Any]], bytes]) -> bytes:
    """The packed input with everything on the host: what wasn't there is `fetched` by its node."""
    start = struct.unpack_from("<QQ", packed, 0)[1]
    kept = _Blocks(values.ALIGN)
    kept.put(memoryview(packed)[start:])

    def moved(node: list[Any]) -> Any:
        if node[0] != "G":
            return node
        index = _AT[node[1][0]]
        return [*node[1][:index], kept.put(memoryview(fetched(node[1]))), *node[1][index + 1 :]]

    return _packed(_rebuilt(values.tree(packed), moved), kept)


def is_made_there(packed: bytes | memoryview) -> bool:
    """Whether an array of this input was made on a device by the problem's own code."""
    seen: list[str] = []

    def look(node: list[Any]) -> Any:
        seen.append(node[0])
        return node

    _rebuilt(values.tree(packed), look)
    return not {"A", "G"}.isdisjoint(seen)


def arrays_only(packed: bytes | memoryview) -> bytes:
    """The packed input without anything but arrays, as far as they are on the device: what a null call carries there.

    Of arrays that stay on the host it keeps where they are, so that making them costs what it does in a call.
    """
    start = struct.unpack_from("<QQ", packed, 0)[1]
    kept = _Blocks(values.ALIGN)
    kept.put(memoryview(packed)[start:])
    return _packed(_rebuilt(values.tree(packed), lambda node: node if node[0] in "nATGP" else None, bare=True), kept)


def offset(node: list[Any]) -> int:
    """Where the array of this node begins."""
    return int(node[_AT[node[0]]])


def at_zero(node: list[Any]) -> list[Any]:
    """The same array at the beginning."""
    index = _AT[node[0]]
    moved = [*node[:index], 0, *node[index + 1 :]]
    return [*moved[:5], "cpu"] if node[0] == "T" else moved


def laid_size(node: list[Any]) -> int:
    """How many bytes an array of a layout has."""
    if node[0] in "nAT":
        return int(node[4])
    return int(node[-1]) * (array.array(node[1]).itemsize if node[0] == "a" else 8)


def packed_size(node: list[Any]) -> int:
    """How many bytes an array of an input has that was never on the host."""
    width = values.width_of(node[1]) if node[0] == "T" else int(node[1][2:])
    return int(math.prod(node[2])) * width


def _packed(tree: Any, kept: _Blocks) -> bytes:
    text = json.dumps(tree, separators=(",", ":")).encode()
    begin = -(-(16 + len(text)) // values.ALIGN) * values.ALIGN
    payload = bytearray(begin + kept.end)
    struct.pack_into("<QQ", payload, 0, len(text), begin)
    payload[16 : 16 + len(text)] = text
    for at, block in kept.blocks:
        payload[begin + at : begin + at + len(block)] = block
    return bytes(payload)


class _Blocks:
    """Blocks one behind another, each on a boundary."""

    def __init__(self, align: int, end: int = 0) -> None:
        self._align, self.end = align, end
        self.blocks: list[tuple[int, memoryview]] = []

    def put(self, block: memoryview) -> int:
        at = self.end
        self.blocks.append((at, block))
        self.end = -(-(at + len(block)) // self._align) * self._align
        return at


def _walk(node: Any, seen: Callable[[list[Any]], None]) -> None:
    match node:
        case ["l" | "t", inner]:
            for item in inner:
                _walk(item, seen)
        case ["d", pairs]:
            for _, item in pairs:
                _walk(item, seen)
        case ["o", _, _, parts]:
            for item in parts:
                _walk(item, seen)
        case [str(kind), *_] if kind in _AT:
            seen(node)
        case _:
            pass


def _rebuilt(node: Any, made: Callable[[list[Any]], Any], *, bare: bool = False, objects: bool = True) -> Any:
    """The same tree with other leaves; with `bare` without those that are no nodes; without `objects` those as they
    are."""

    def again(item: Any) -> Any:
        return _rebuilt(item, made, bare=bare, objects=objects)

    match node:
        case ["l" | "t" as kind, inner]:
            return [kind, [again(item) for item in inner]]
        case ["d", pairs]:
            return ["d", [[key, again(item)] for key, item in pairs]]
        case ["o", _, _, _] if not objects:
            return node
        case ["o", kind, meta, parts]:
            return ["o", kind, meta, [again(item) for item in parts]]
        case [str(), *_]:
            return made(node)
        case _:
            return None if bare else node


def _is_empty(node: list[Any]) -> bool:
    """An array of nothing stands where the next one begins."""
    return 0 in node[2] if node[0] in "nAT" else node[-1] == 0


def _dense(node: list[Any], blob: memoryview) -> tuple[list[Any], memoryview]:
    """An array in another order of its dimensions, as compiled code is given it: in C order."""
    if node[0] == "T":
        tensor = values.made([*node[:5], "cpu"], blob).contiguous()
        size = tensor.numel() * tensor.element_size()
        block = bytearray(size)
        values.copy_tensor(tensor, memoryview(block))
        shape = list(tensor.shape)
    else:
        dense = values.made(node, blob).copy(order="C")
        block, shape = bytearray(dense.tobytes()), list(dense.shape)
    return [*node[:2], shape, node[3], list(range(len(shape))), *node[5:]], memoryview(block)
