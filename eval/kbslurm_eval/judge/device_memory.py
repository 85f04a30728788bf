"""Inputs and answers of a problem's own code that lie on the device: they stay there.

What `generate_input` makes on the device is copied on it once, into memory that only the judge has mapped (an image of
all arrays of one input). From there it goes to the memory that a runner was lent by one copy on the device, after the
clock has started; reference and check get further copies of it; an answer is copied out of the lent memory as soon as
its runner is stopped, and checked there. None of it travels through the host.

Arrays are torch's tensors on a device, and those of any library that has `__cuda_array_interface__`: a problem gets the
latter back as `DeviceArray`, by the same interface.
"""

from __future__ import annotations

import array
import contextlib
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbslurm_eval.device import arrays, call_parts, driver
from kbslurm_eval.shared import layouts, values

IDLE = 8  # so many pieces are kept for later
SAMPLES, SAMPLE = 256, 64
STEP = 1 << 24


class Piece:
    """A piece of the judge's memory on the device; used again when nothing refers to it any more."""

    def __init__(self, owner: DeviceMemory, memory: driver.Memory, size: int) -> None:
        self.at, self.size, self.held = memory.at, size, size
        self._owner, self._memory = owner, memory

    def __del__(self) -> None:
        self._owner.idle.append(self._memory)

    def copy(self) -> Piece:
        """The same bytes once more."""
        made = self._owner.room(self.size)
        made.held = self.held
        self._owner.device.copy(made.at, self.at, self.size)
        return made

    def hosted(self, packed: bytes | memoryview) -> bytes:
        """The packed input whose arrays these are, with all of them on the host."""

        def fetched(node: list[Any]) -> bytes:
            return self._owner.device.read(self.at + call_parts.offset(node), call_parts.packed_size(node))

        return call_parts.hosted(packed, fetched)

    def samples(self) -> bytes:
        """Its end, and pieces at even distances."""
        device, pitch = self._owner.device, self.size // SAMPLES
        if pitch <= SAMPLE:
            return device.read(self.at, self.size)
        return device.gather(self.at, pitch, SAMPLE, SAMPLES) + device.read(self.at + self.size - SAMPLE, SAMPLE)

    def same(self, other: Piece) -> bool:
        """Whether these are the same bytes."""
        if self.size != other.size:
            return False
        read, parts = self._owner.device.read, ((at, min(STEP, self.size - at)) for at in range(0, self.size, STEP))
        return all(read(self.at + at, n) == read(other.at + at, n) for at, n in parts)


class DeviceMemory:
    """The judge's memory on one run's device. `opened` gives the device, and CantStart where there is none."""

    def __init__(self, opened: Callable[[], driver.Device], shares: Callable[[], bool]) -> None:
        self._opened, self._shares = opened, shares
        self.idle: list[driver.Memory] = []

    @property
    def shares(self) -> bool:
        """Whether the device's memory can be lent, so that it is of use to have anything there."""
        return self._shares()

    @property
    def device(self) -> driver.Device:
        """The device."""
        return self._opened()

    def room(self, size: int) -> Piece:
        """Memory of this size, with whatever is in it."""
        fitting = [n for n, one in enumerate(self.idle) if size <= one.size <= 2 * size + STEP]
        if fitting:
            self.device.synchronize()  # whoever had it may have left work on it
            return Piece(self, self.idle.pop(min(fitting, key=lambda n: self.idle[n].size)), size)
        while len(self.idle) > IDLE:
            self.device.free(self.idle.pop(0))
        try:
            memory = self.device.allocate(size)
        except driver.OutOfDeviceMemory:
            self.give_back()
            memory = self.device.allocate(size)
        return Piece(self, memory, size)

    def reserve(self, sizes: Sequence[int]) -> None:
        """Have so many pieces of these sizes, before a submission could take the memory."""
        held = [self.room(size) for size in sizes if size]
        del held

    def give_back(self) -> None:
        """Free what isn't used, the judge's torch's cache included: nobody else may be blamed for what it holds."""
        while self.idle:
            self.device.free(self.idle.pop())
        if (torch := values.loaded("torch")) is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()

    def image(self) -> Image:
        """For the arrays of one input."""
        return Image(memory=self)

    def arrays(self, piece: Piece | None) -> Copies:
        """Arrays over this piece."""
        return Copies(memory=self, piece=piece)

    def answered(self, piece: Piece | None) -> Answered:
        """What of an answer is in this piece."""
        return Answered(memory=self, piece=piece)

    def view(self, node: Any, piece: Piece) -> Any:
        """The array that this node of a packed input describes, over this memory."""
        if node[0] == "T":
            _, name, shape, at, order, _ = node
            found = arrays.tensor_over(piece.at + at, name, shape, self.device.facts.index, owner=piece)
            return found if order == sorted(order) else found.permute(sorted(range(len(order)), key=order.__getitem__))
        _, typestr, shape, at, order = node
        form = arrays.permuted(shape, order, int(typestr[2:]))
        return arrays.DeviceArray(piece.at + at, typestr, *form, owner=piece)

    def raised(self, typestr: str, shape: list[int], found: memoryview) -> Any:
        """An array of another library's form, with the bytes at the beginning of these."""
        size = math.prod(shape) * int(typestr[2:])
        piece = self.room(max(1, size))
        self.device.write(piece.at, found[:size])
        return self.view(["A", typestr, shape, 0, list(range(len(shape)))], piece)

    def seen(self, value: Any) -> Any:
        """Arrays that only have an interface as something whose numbers can be looked at: torch's tensors where torch
        is there, on the device, or else what they contain, on the host."""
        if (told := values.interface_of(value)) is not None:
            if (torch := values.loaded("torch")) is not None and torch.cuda.is_available():
                return torch.as_tensor(value, device=f"cuda:{self.device.facts.index}")
            count, width = math.prod(told["shape"]), int(told["typestr"][2:])
            return _numbers(told["typestr"][1:], count, self.device.read(int(told["data"][0]), count * width))
        match value:
            case list() | tuple() if set(map(type, value)) <= {int, float}:
                return value
            case list() | tuple() if type(value) in (list, tuple):
                return [self.seen(item) for item in value]
            case dict() if type(value) is dict:
                return {key: self.seen(item) for key, item in value.items()}
            case _:
                return value

    def close(self) -> None:
        """Free everything that isn't used."""
        with contextlib.suppress(driver.DriverError):
            self.give_back()


@dataclass(kw_only=True)
class Image:
    """The arrays on the device of one input that is being packed. `filled` makes the judge's copy of them."""

    memory: DeviceMemory
    end: int = 0
    held: int = 0
    blocks: list[tuple[int, int, int, Any]] = field(default_factory=list)

    def taken(self, value: Any, put: Callable[[Any], int], where: str) -> Any:
        """The node of an array of another library that lies there; None for anything else."""
        if (told := values.interface_of(value)) is None:
            return None
        shape, typestr = list(told["shape"]), told["typestr"]
        strides = told.get("strides")
        if strides is not None and tuple(strides) != arrays.c_strides(tuple(shape), int(typestr[2:])):
            raise values.Unsendable(f"{where} isn't in C order; make it contiguous")
        size, at = math.prod(shape) * int(typestr[2:]), int(told["data"][0])
        order = list(range(len(shape)))
        if not self.memory.shares:
            return ["A", typestr, shape, put(self.memory.device.read(at, size)), order]
        return ["G", ["A", typestr, shape, self._put(at, size, value), order]]

    def laid(self, value: Any, node: list[Any]) -> bool:
        """Whether this dense array, which shares its memory with no other, lies there; its node then says so."""
        if not self.memory.shares or values.array_kind(value) != "torch" or not _is_there(value):
            return False
        _, name, shape, _, order, _ = node
        dense = value.detach().permute(order)
        at = self._put(int(dense.data_ptr()), dense.numel() * dense.element_size(), dense)
        node[:] = ["G", ["T", name, shape, at, order, "cuda"]]
        return True

    def _put(self, source: int, size: int, owner: Any) -> int:
        at = self.end
        self.blocks.append((at, source, size, owner))
        self.held += size
        self.end = -(-(at + size) // call_parts.ALIGN) * call_parts.ALIGN
        return at

    def filled(self) -> Piece | None:
        """The judge's copy of them; None where there are none."""
        if not self.blocks:
            return None
        device = self.memory.device
        device.synchronize()  # what makes them may still be at work
        found = self.memory.room(max(self.end, call_parts.ALIGN))
        found.held = self.held
        for at, source, size, _ in self.blocks:
            device.copy(found.at + at, source, size)
        self.blocks.clear()
        return found


def _is_there(tensor: Any) -> bool:
    return tensor.device.type == "cuda" and not str(tensor.layout).startswith("torch.sparse")


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Arrays of one packed input, in a copy of its image that is their own."""

    memory: DeviceMemory
    piece: Piece | None

    def made(self, node: Any) -> Any:
        """The array of this node."""
        assert self.piece is not None
        return self.memory.view(node, self.piece)

    def raised(self, node: Any, blocks: memoryview) -> Any:
        """The array of this node, which came through the host."""
        return self.memory.raised(node[1], node[2], blocks[node[3] :])


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What stood in the lent memory when its runner had been stopped; None where nothing of an answer was there."""

    memory: DeviceMemory
    piece: Piece | None

    def read(self, node: Any) -> Any:
        """The array of this node of a split layout: on the device where the reference's is, or else on the host."""
        assert self.piece is not None
        device, at = self.memory.device, call_parts.offset(node)
        if node[0] == "A" or (node[0] == "T" and node[5] != "cpu"):
            return self._there(node, self.piece)
        size = call_parts.laid_size(node)
        found = memoryview(bytearray(device.read(self.piece.at + at, size)))
        return layouts.read_one(call_parts.at_zero(node), found)

    def _there(self, node: Any, piece: Piece) -> Any:
        if node[1] in ("bool", "|b1"):
            raw = self.memory.device.read(piece.at + node[3], node[4])
            layouts.are_truths(not raw.translate(None, b"\0\1"))
        return self.memory.view([*node[:4], list(range(len(node[2]))), *node[5:]], piece)

    def raised(self, node: Any, found: memoryview) -> Any:
        """An array that came through the host, on the device again."""
        return self.memory.raised(node[1], node[2], found)


def _numbers(kind: str, count: int, raw: bytes) -> Any:
    match kind:
        case "f2":
            return list(struct.unpack(f"<{count}e", raw))
        case "f4" | "c8":
            return array.array("f", raw)
        case "f8" | "c16":
            return array.array("d", raw)
        case _:
            return raw
