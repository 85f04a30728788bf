"""The runner's half of a device: the judge's memory mapped into this process, arrays over it, and two events around a
call.

Nothing here is trusted once a submission shares this process: what it writes it writes into the judge's memory, where
the judge reads it, and what it says of time is a claim.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import importlib
import os
import socket
from collections.abc import Callable
from typing import Any

from kbslurm_eval.device import arrays, driver
from kbslurm_eval.shared import layouts, runner_link, strided, values

_TYPESTR = {"b": "|i1", "B": "|u1", "h": "<i2", "H": "<u2", "i": "<i4", "I": "<u4", "l": "<i8", "L": "<u8", "q": "<i8",
            "Q": "<u8", "f": "<f4", "d": "<f8"}  # fmt: skip
_WIDTHS = {"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4,
           "int64": 8, "float64": 8, "complex64": 8, "complex128": 16}  # fmt: skip


class Side:
    """The device as this runner has it."""

    def __init__(self, kind: str, uuid: str) -> None:
        found = driver.Driver(kind)
        mine = [facts for facts in found.devices if facts.uuid == uuid]
        if not mine:
            raise driver.NoDevice("the runner doesn't see the device that the judge has")
        self.device = found.open(mine[0].index)
        self.version = 0
        self._in = self._out = self._out_size = 0
        self._own: dict[tuple[str, int], driver.Memory] = {}
        self._tensors: dict[str, Any] = {}
        self._began, self._ended = self.device.event(), self.device.event()

    def map(self, name: str, fd: int, size: int) -> None:
        """Memory of the judge's. What was mapped before stays: a submission may still hold arrays over it."""
        try:
            at = self.device.imported(fd, size).at
        finally:
            os.close(fd)
        if name == "in":
            self._in = at
        else:
            self._out, self._out_size = at, size
        self.version += 1
        self._tensors.clear()

    # ------------------------------------------------------------------------------------------------------- time

    def begin(self) -> None:
        """The first event: the input is at hand, the submission isn't called yet."""
        self.device.record(self._began)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, with the first event right before it."""
        begin = self.begin

        def begun(data: Any, **more: Any) -> Any:
            begin()
            return call(data, **more)

        return begun

    def finish(self) -> None:
        """Everything of this process is done on the device when this returns."""
        self.device.synchronize()

    def end(self) -> int:
        """The second event; everything of this process is done on the device when this returns. The time between."""
        self.device.record(self._ended)
        self.device.synchronize()
        return self.device.elapsed_ns(self._began, self._ended)

    # ------------------------------------------------------------------------------------------------ for compiled

    def input_at(self, node: list[Any], blocks: memoryview | None) -> int:
        """Where an input's array is: in the judge's memory, or, with these bytes in it, in some of our own."""
        at = _offset(node)
        if blocks is None:
            return self._in + at
        size = _size(node)
        mine = self._mine("in", at, size)
        self.device.write(mine, blocks[at : at + size])
        return mine

    def output_at(self, node: list[Any], *, shared: bool) -> tuple[int, list[tuple[int, int, int]]]:
        """Where an output's array belongs, and what has to be fetched from there afterwards."""
        at = _offset(node)
        if shared:
            return self._out + at, []
        size = _size(node, laid=True)
        mine = self._mine("out", at, size)
        return mine, [(mine, at, size)]

    def fetch(self, found: list[tuple[int, int, int]], out: memoryview) -> None:
        """Bytes of the device's to their places in the link."""
        self.device.synchronize()
        for there, at, size in found:
            out[at : at + size] = self.device.read(there, size)

    def _mine(self, name: str, at: int, size: int) -> int:
        held = self._own.get((name, at))
        if held is None or held.size < size:
            held = self._own[name, at] = self.device.allocate(size)
            self.version += 1
        return held.at

    # --------------------------------------------------------------------------------------------------- for Python

    def made(self, node: Any, blocks: memoryview | None) -> Any:
        """The value of one array of an input."""
        if node[0] == "T":
            return self._tensor(node) if blocks is None else values.made(node, blocks)
        at = self.input_at(node, blocks)
        if node[0] in ("n", "A"):
            _, typestr, shape, _, order = node
            if isinstance(order, dict):
                return arrays.DeviceArray(at + order["offset"], typestr, tuple(shape), tuple(order["strides"]))
            return arrays.DeviceArray(at, typestr, *arrays.permuted(shape, order, int(typestr[2:])))
        _, code, _, size = node
        return arrays.DeviceArray(at, _TYPESTR[code], (size // array.array(code).itemsize,))

    def _tensor(self, node: list[Any]) -> Any:
        """A tensor over the judge's memory; a fresh one each time, so that nobody's change of its form stays."""
        key = str(node)
        found = self._tensors.get(key)
        if found is None:
            _, name, shape, at, order, _ = node
            if isinstance(order, dict):
                found = self._tensors[key] = self._within(node)
                return found.detach()
            found = self._over(self._in + at, name, shape)
            if order != sorted(order):
                found = found.permute(sorted(range(len(order)), key=order.__getitem__))
            self._tensors[key] = found
        return found.detach()

    def _within(self, node: list[Any]) -> Any:
        """A tensor in a block of the judge's memory that others may lie in, too."""
        at, size = node[3], node[4]["size"]
        key = f"block {at} {size}"
        if key not in self._tensors:
            self._tensors[key] = self._over(self._in + at, "uint8", [size])
        return strided.tensor(importlib.import_module("torch"), node, self._tensors[key])

    def _over(self, at: int, name: str, shape: list[int]) -> Any:
        return arrays.tensor_over(at, name, shape, self.device.facts.index)

    def place(self, node: Any) -> Any:
        """The array over the judge's memory where one array of the output is read: of an output, or of an input whose
        place that is."""
        if node[0] == "T":
            return self._over(self._out + node[3], node[1], node[2])
        typestr, shape = (node[1], tuple(node[2])) if node[0] in ("n", "A") else (_TYPESTR.get(node[1]), (node[-1],))
        return None if typestr is None else arrays.DeviceArray(self._out + _offset(node), typestr, shape)

    def apart(self, node: Any, value: Any) -> Any:
        """The value, or a copy of one that is in the output but at another array's place."""
        at = _where(value) - self._out
        if at == _offset(node) or not 0 <= at < self._out_size:
            return value
        if node[0] == "T":
            return value.clone()
        size = _size(node, laid=True)
        held = self.device.allocate(size)
        self.device.copy(held.at, self._out + at, size)
        typestr, shape = (node[1], tuple(node[2])) if node[0] in ("n", "A") else (_TYPESTR[node[1]], (node[3],))
        return arrays.DeviceArray(held.at, typestr, shape, owner=_Held(self.device, held))

    def take(self, node: Any, value: Any, out: memoryview | None, where: str) -> None:
        """The value's bytes into the place of one array of the output."""
        if node[0] == "T":
            if out is not None:
                layouts.write_torch(node, value, out, where)
                return
            torch = importlib.import_module("torch")
            dtype = getattr(torch, node[1])
            value = layouts.tensor_of_number(node, value)
            layouts.fit(isinstance(value, torch.Tensor), f"{where} is a {type(value).__name__}; a tensor was expected")
            layouts.fit(value.dtype == dtype, f"{where} has dtype {value.dtype}; {dtype} was expected")
            shape = tuple(node[2])
            layouts.fit(
                tuple(value.shape) == shape, f"{where} has shape {tuple(value.shape)}; {shape} was expected", shape=True
            )
            layouts.fit(value.device.type == "cuda", f"{where} is on {value.device.type}; cuda was expected")
            key = f"out{node}"
            if key not in self._tensors:
                self._tensors[key] = self._over(self._out + node[3], node[1], node[2])
            if value.data_ptr() != self._tensors[key].data_ptr() or not value.is_contiguous():
                self._tensors[key].copy_(value.detach())
            return
        typestr, shape = (node[1], tuple(node[2])) if node[0] in ("n", "A") else (_TYPESTR[node[1]], (node[3],))
        at, size = _offset(node), _size(node, laid=True)
        source = _address(value, typestr, shape, where)
        if size == 0:
            return
        if out is None:
            if source != self._out + at:
                self.device.copy(self._out + at, source, size)
        else:
            self.device.synchronize()
            out[at : at + size] = self.device.read(source, size)


class _Held:
    """Memory of this process's own, given back with the last array over it."""

    def __init__(self, device: driver.Device, memory: driver.Memory) -> None:
        self._device, self._memory = device, memory

    def __del__(self) -> None:
        with contextlib.suppress(driver.DriverError):
            self._device.free(self._memory)


def _where(value: Any) -> int:
    """The address of an array on the device; 0 of anything else."""
    if (told := values.interface_of(value)) is not None:
        return int(told["data"][0])
    return int(value.data_ptr()) if values.array_kind(value) == "torch" and value.device.type == "cuda" else 0


def connected(folder: str) -> socket.socket:
    """The line by which the judge hands memory over. It is there before the judge asks for anything on it."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    above = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        line.connect(runner_link.lent_socket(folder, above))
    finally:
        os.close(above)
    return line


def received(line: socket.socket) -> int:
    """The next descriptor, which the judge sent before it asked us to take it."""
    data, found, _, _ = socket.recv_fds(line, 1, 1)
    if not data or len(found) != 1:
        raise driver.DriverError("the judge's memory wasn't passed along")
    return found[0]


def _offset(node: list[Any]) -> int:
    return int(node[{"n": 3, "A": 3, "T": 3, "a": 2}.get(node[0], 1)])


def _size(node: list[Any], *, laid: bool = False) -> int:
    match node:
        case ["n" | "T", _, _, _, {"size": int() as size}, *_]:
            return size
        case ["n" | "A", typestr, shape, *_]:
            return arrays.count(tuple(shape)) * int(typestr[2:])
        case ["T", name, shape, *_]:
            return arrays.count(tuple(shape)) * (_WIDTHS.get(name) or 1)
        case ["a", code, _, size]:
            return int(size) * (array.array(code).itemsize if laid else 1)
        case _:
            return 8 * int(node[2])


def _address(value: Any, typestr: str, shape: tuple[int, ...], where: str) -> int:
    told = getattr(value, "__cuda_array_interface__", None)
    said = f"{where} is a {type(value).__name__}; an array on the device was expected"
    layouts.fit(isinstance(told, dict), said)
    assert isinstance(told, dict)
    layouts.fit(told.get("typestr") == typestr, f"{where} has dtype {told.get('typestr')}; {typestr} was expected")
    found = tuple(told.get("shape", ()))
    layouts.fit(found == shape, f"{where} has shape {found}; {shape} was expected", shape=True)
    strides = told.get("strides")
    dense = strides is None or tuple(strides) == arrays.c_strides(shape, int(typestr[2:]))
    layouts.fit(dense, f"{where} isn't in C order; make it contiguous")
    return ctypes.c_uint64(int(told["data"][0])).value
