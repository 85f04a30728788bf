"""What of a call belongs into the device's memory: a packed input without its device arrays, and a layout whose device
arrays have places there.

A node `["G", node]` stands for an array in memory of the judge's that the runner has mapped, `["H", node]` for one that
travels by the link and is put onto the device by the runner itself. Tensors of a device always are of this kind; where
a problem says `arrays: device`, so are numpy arrays, `array.array`, and, for compiled submissions, lists of numbers.
"""

from __future__ import annotations

import array
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kbslurm_eval.shared import layouts, values

ALIGN = 256  # what allocations of a device are aligned to at least
_AT = {"n": 3, "T": 3, "q": 1, "f": 1, "b": 1, "B": 1, "a": 2, "s": 2}  # where a node of a packed text has its offset


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
            case "n" | "a":
                return self.arrays
            case "q" | "f":
                return self.arrays and self.native
            case _:
                return False

    def wanted(self, node: list[Any]) -> bool:
        """Whether this array of an output is: its nodes have the same form there."""
        return node[0] in ("T", "n", "a", "q", "f") and self.given(node)


@dataclass(frozen=True, kw_only=True)
class SplitInput:
    """An input in two parts: what goes through the link, and what goes onto the device, where it is to stand."""

    payload: bytes
    blocks: tuple[tuple[int, memoryview], ...]
    size: int

    def pieces(self) -> Iterator[tuple[int, bytes | memoryview]]:
        """The device's part as it lies there, piece by piece: blocks, and zeros between them."""
        end = 0
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

    def joined(self, host: bytes | bytearray | memoryview, device: bytes, size: int) -> bytearray:
        """The output's bytes in the layout that was split."""
        if len(host) != self.layout.size or len(device) != self.size:
            return bytearray()
        out = bytearray(host) if len(host) else bytearray(size)
        for at, length, there in self.pieces:
            out[at : at + length] = device[there : there + length]
        return out


def split_input(packed: bytes | memoryview, choice: DeviceChoice, mark: str = "G") -> SplitInput | None:
    """The packed input in its two parts; with mark `H` all of it stays in the first. None where nothing is the
    device's."""
    start = struct.unpack_from("<QQ", packed, 0)[1]
    tree = values.tree(packed)
    blob = memoryview(packed)[start:]
    found: list[list[Any]] = []
    _walk(tree, found.append)
    if not any(choice.given(node) for node in found):
        return None
    ends = sorted({node[_AT[node[0]]] for node in found} | {len(blob)})
    after = dict(zip(ends, [*ends[1:], len(blob)], strict=True))
    kept = _Blocks(values.ALIGN)
    away = _Blocks(ALIGN) if mark == "G" else kept

    def moved(node: list[Any]) -> Any:
        if node[0] not in _AT:
            return node
        index = _AT[node[0]]
        at = node[index]
        block = blob[at : at if _is_empty(node) else after[at]]
        if not choice.given(node):
            return [*node[:index], kept.put(block), *node[index + 1 :]]
        if choice.native and node[0] in "nT" and node[index + 1] != sorted(node[index + 1]):
            node, block = _dense(node, blob)
        there = [*node[:index], away.put(block), *node[index + 1 :]]
        return [mark, [*there[:5], "cuda"] if node[0] == "T" else there]

    text = json.dumps(_rebuilt(tree, moved), separators=(",", ":")).encode()
    begin = -(-(16 + len(text)) // values.ALIGN) * values.ALIGN
    payload = bytearray(begin + kept.end)
    struct.pack_into("<QQ", payload, 0, len(text), begin)
    payload[16 : 16 + len(text)] = text
    for at, block in kept.blocks:
        payload[begin + at : begin + at + len(block)] = block
    return SplitInput(
        payload=bytes(payload),
        blocks=tuple(away.blocks) if away is not kept else (),
        size=away.end if away is not kept else 0,
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
        index = {"n": 3, "T": 3, "a": 2, "q": 1, "f": 1}[node[0]]
        size = node[4] if node[0] in "nT" else node[-1] * (array.array(node[1]).itemsize if node[0] == "a" else 8)
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


class _Blocks:
    """Blocks one behind another, each on a boundary."""

    def __init__(self, align: int) -> None:
        self._align, self.end = align, 0
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


def _rebuilt(node: Any, made: Callable[[list[Any]], Any]) -> Any:
    match node:
        case ["l" | "t" as kind, inner]:
            return [kind, [_rebuilt(item, made) for item in inner]]
        case ["d", pairs]:
            return ["d", [[key, _rebuilt(item, made)] for key, item in pairs]]
        case ["o", kind, meta, parts]:
            return ["o", kind, meta, [_rebuilt(item, made) for item in parts]]
        case [str(), *_]:
            return made(node)
        case _:
            return node


def _is_empty(node: list[Any]) -> bool:
    """An array of nothing stands where the next one begins."""
    return 0 in node[2] if node[0] in "nT" else node[-1] == 0


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
