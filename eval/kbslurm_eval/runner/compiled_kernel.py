"""A submission in C++ or CUDA, called by its runner with pointers into the link's own memory.

A call's arrays are those of the packed input, in order: of lists, tuples and dicts what is in them, a list of whole
numbers as 64-bit integers and one of floats as doubles, a single number as an array without dimensions, text as its
bytes. Outputs are the declared layout's places. Nothing is copied on the way, but tensors of a GPU.
"""

from __future__ import annotations

import array
import ctypes
import json
import struct
from collections.abc import Callable
from typing import Any

from kbslurm_eval.build.c_arrays import (
    BACK,
    BOOL,
    C128,
    F64,
    I64,
    OF_ARRAY,
    OF_NUMBER,
    OF_NUMPY,
    OF_TORCH,
    OTHER,
    SAID_CAP,
    U8,
    CallArrays,
    Place,
    call_arrays,
)
from kbslurm_eval.runner import device_arrays, forked
from kbslurm_eval.shared import layouts, values
from kbslurm_eval.shared.runner_link import Status


class Kernel:
    """A submission's library, called with pointers into the link's memory."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._call, self._warm, self._serve = self._library.kb_call, self._library.kb_warm, self._library.kb_serve
        self._call.restype = self._warm.restype = self._serve.restype = ctypes.c_int
        self._token = ctypes.c_ulonglong()
        self._mark = ctypes.c_void_p(forked.mark_at())
        self.warms = bool(self._library.kb_warms())  # it has a `kb_warm_up`
        self._said = ctypes.create_string_buffer(SAID_CAP)
        self._outputs: dict[tuple[int, int, int], CallArrays] = {}
        self.before: Callable[[], None] | None = None  # what happens between the last preparation and the call

    def answers_with(
        self, layout: layouts.Layout, view: memoryview, out: memoryview, given: CallArrays | None = None
    ) -> tuple[int, str]:
        """One call: a status of the link, and a text where it isn't OK. `given`: its arrays, where they are known."""
        given = given or flattened(view)
        side = side_here()
        held = self._held(layout, out, side)
        self._said[0] = b"\0"
        if self.before is not None:
            self.before()
        code = self._call(given.arrays, given.count, held.arrays, held.count, self._said, SAID_CAP)
        return self._ended(code, held, out, side)

    def serves(self, layout: layouts.Layout, out: memoryview) -> bool:
        """Whether its answers are where they belong once it has returned, so that it may wait for a call itself."""
        held = self._held(layout, out, side_here())
        return not (held.devices or held.fetched or held.wholes or self.before)

    def served(
        self, words: memoryview, last: int, layout: layouts.Layout, out: memoryview, given: CallArrays
    ) -> tuple[int, int, str]:
        """Say that it is awake, wait for the next token, make the call and answer it, and so on while calls are alike:
        the last token, and status and text where a call went wrong, which isn't answered."""
        held = self._held(layout, out, None)
        self._said[0] = b"\0"
        bell = ctypes.c_void_p(_address(words.cast("B")))
        token = ctypes.byref(self._token)
        code = self._serve(
            bell,
            ctypes.c_ulonglong(last),
            given.arrays,
            given.count,
            held.arrays,
            held.count,
            self._said,
            SAID_CAP,
            token,
            self._mark,
        )
        if code == BACK and not forked.is_child():
            return self._token.value, Status.OK, ""
        return (self._token.value, *self._ended(code, held, out, None))

    def _ended(self, code: int, held: CallArrays, out: memoryview, side: device_arrays.Side | None) -> tuple[int, str]:
        if forked.is_child():
            forked.end(RuntimeError(self._said.value.decode("utf-8", "replace")) if code > 0 else None)
        for tensor, at, size in held.devices:
            values.copy_tensor(tensor, out[at : at + size])
        if side is not None and held.fetched:
            side.fetch(held.fetched, out)
        for at, width in held.wholes:
            whole = int.from_bytes(out[at : at + 8], "little", signed=True)
            out[at : at + width] = whole.to_bytes(width, "little", signed=True)
        if code == 0:
            return Status.OK, ""
        text = self._said.value.decode("utf-8", "replace")
        match code:
            case 1:
                return Status.WRONG_SHAPE, text
            case 3:
                return Status.MEMORY, text
            case _:
                return Status.RAISED, text or "the submission returned an error"

    def warmed_up(self, layout: layouts.Layout, out: memoryview, given: CallArrays) -> str:
        """What its `kb_warm_up` says that went wrong, or an empty text."""
        held = self._held(layout, out, side_here())
        self._said[0] = b"\0"
        code = self._warm(given.arrays, given.count, held.arrays, held.count, self._said, SAID_CAP)
        if forked.is_child():
            forked.end(RuntimeError(self._said.value.decode("utf-8", "replace")) if code else None)
        return "" if code == 0 else self._said.value.decode("utf-8", "replace") or "it returned an error"

    def _held(self, layout: layouts.Layout, out: memoryview, side: device_arrays.Side | None) -> CallArrays:
        """The places of an answer, as arrays."""
        key = (id(layout), _address(out), 0 if side is None else side.version)
        held = self._outputs.get(key)
        if held is None:
            held = self._outputs[key] = outputs_of(layout, out)
        return held


def side_here() -> device_arrays.Side | None:
    """Who has the arrays of the device in this runner, when it has one."""
    side = values.device_side
    return side if isinstance(side, device_arrays.Side) else None


def flattened(view: memoryview, out: memoryview | None = None) -> CallArrays:
    """The arrays of a packed input, each where it lies."""
    length, start = struct.unpack_from("<QQ", view, 0)
    return flattened_ahead((json.loads(bytes(view[16 : 16 + length])), start), view)


def flattened_ahead(text: tuple[Any, int], view: memoryview, out: memoryview | None = None) -> CallArrays:
    """The arrays of the packed input that this text describes, whatever is in it yet."""
    found: list[Place] = []
    kept: list[Any] = [view]
    _walk(text[0], _address(view) + text[1], found, kept, view[text[1] :])
    return call_arrays(found, kept)


def _walk(node: Any, base: int, found: list[Place], kept: list[Any], view: Any) -> None:
    match node:
        case ["l" | "t", inner]:
            for item in inner:
                _walk(item, base, found, kept, view)
        case ["o", _, _, inner]:
            for item in inner:
                _walk(item, base, found, kept, view)
        case ["d", pairs]:
            for _, item in pairs:
                _walk(item, base, found, kept, view)
        case ["q" | "f" as code, at, count]:
            found.append((base + at, count, I64 if code == "q" else F64, (count,)))
        case ["a", code, at, size]:
            count = size // array.array(code).itemsize
            found.append((base + at, count, OF_ARRAY.get(code, OTHER), (count,)))
        case ["b" | "B", at, size]:
            found.append((base + at, size, U8, (size,)))
        case ["n", dtype, shape, at, order]:
            found.append(_numpy(dtype, shape, at, order, base, kept, view))
        case ["s", dtype, at]:
            found.append((base + at, 1, OF_NUMPY.get(dtype[1:], OTHER), ()))
        case ["v", code, at]:
            found.append((base + at, 1, OF_NUMBER[code], ()))
        case ["T", name, shape, at, order, device]:
            if device == "cpu" and order == sorted(order):
                found.append((base + at, _count(shape), OF_TORCH.get(name, OTHER), tuple(shape)))
            else:
                tensor = values.made(node, view).contiguous()
                kept.append(tensor)
                found.append((tensor.data_ptr(), tensor.numel(), OF_TORCH.get(name, OTHER), tuple(tensor.shape)))
        case ["G" | "H" as kind, inner]:
            side = side_here()
            assert side is not None
            at = side.input_at(inner, None if kind == "G" else view)
            found.append((at, *_described(inner, packed=True)))
        case ["c", real, imag]:
            found.append(_inline(struct.pack("<dd", real, imag), C128, kept))
        case None:
            found.append((0, 0, OTHER, (0,)))
        case bool():
            found.append(_inline(bytes([node]), BOOL, kept))
        case int():
            found.append(_inline(struct.pack("<q", node), I64, kept))
        case float():
            found.append(_inline(struct.pack("<d", node), F64, kept))
        case str():
            blob = node.encode("utf-8", "surrogatepass")
            at, _, code, _ = _inline(blob, U8, kept)
            found.append((at, len(blob), code, (len(blob),)))
        case _:
            raise values.Unsendable("compiled code can't take this input")


def _described(node: list[Any], *, packed: bool = False) -> tuple[int, int, tuple[int, ...]]:
    """How many elements of what type in what shape an array of the device has."""
    match node:
        case ["n" | "A", dtype, shape, *_]:
            return _count(shape), OF_NUMPY.get(dtype[1:], OTHER), tuple(shape)
        case ["T", name, shape, *_]:
            return _count(shape), OF_TORCH.get(name, OTHER), tuple(shape)
        case ["a", code, _, count]:  # a packed one says how many bytes
            count //= array.array(code).itemsize if packed else 1
            return count, OF_ARRAY.get(code, OTHER), (count,)
        case [code, _, count]:
            return count, I64 if code == "q" else F64, (count,)
        case _:
            raise values.Unsendable("the array isn't on the device")


def _numpy(dtype: str, shape: list[int], at: int, order: list[int], base: int, kept: list[Any], view: Any) -> Place:
    code = OF_NUMPY.get(dtype[1:], OTHER)
    if order == sorted(order):
        return base + at, _count(shape), code, tuple(shape)
    dense = values.made(["n", dtype, shape, at, order], view).copy(order="C")
    kept.append(dense)
    return int(dense.ctypes.data), dense.size, code, tuple(dense.shape)


def _inline(blob: bytes, code: int, kept: list[Any]) -> Place:
    buffer = ctypes.create_string_buffer(blob, max(1, len(blob)))
    kept.append(buffer)
    return ctypes.addressof(buffer), 1, code, ()


def outputs_of(layout: layouts.Layout, out: memoryview) -> CallArrays:
    """The places of a declared layout, as arrays."""
    found: list[Place] = []
    kept: list[Any] = [out]
    held = CallArrays(arrays=None, count=0, kept=kept, devices=[], fetched=[], wholes=[])
    _lay(layout.tree, _address(out), found, held)
    return call_arrays(found, kept, held)


def _lay(node: Any, base: int, found: list[Place], held: CallArrays) -> None:
    match node:
        case ["l" | "t", inner]:
            for item in inner:
                _lay(item, base, found, held)
        case ["d", pairs]:
            for _, item in pairs:
                _lay(item, base, found, held)
        case ["q" | "f" as code, at, count]:
            found.append((base + at, count, I64 if code == "q" else F64, (count,)))
        case ["a", code, at, count]:
            found.append((base + at, count, OF_ARRAY.get(code, OTHER), (count,)))
        case ["n", dtype, shape, at, _]:
            found.append((base + at, _count(shape), OF_NUMPY.get(dtype[1:], OTHER), tuple(shape)))
        case ["s", dtype, at]:
            found.append((base + at, 1, OF_NUMPY.get(dtype[1:], OTHER), ()))
        case ["T", name, shape, at, size, device]:
            if device == "cpu":
                found.append((base + at, _count(shape), OF_TORCH.get(name, OTHER), tuple(shape)))
                return
            tensor = values.empty_tensor(name, shape, device)
            held.kept.append(tensor)
            held.devices.append((tensor, at, size))
            found.append((tensor.data_ptr(), _count(shape), OF_TORCH.get(name, OTHER), tuple(shape)))
        case ["G" | "H" as kind, inner]:
            side = side_here()
            assert side is not None
            place, fetched = side.output_at(inner, shared=kind == "G")
            held.fetched += fetched
            found.append((place, *_described(inner)))
        case ["g", at]:
            found.append((base + at, 1, F64, ()))
        case ["c", at]:
            found.append((base + at, 1, C128, ()))
        case ["?", at]:
            found.append((base + at, 1, BOOL, ()))
        case ["m", at, count, _]:
            found.append((base + at, count, F64, (count,)))
        case ["i" | "j" as kind, at, width]:
            held.wholes.append((at, width + (kind == "j")))  # a `j` may end with a 1, which no sign does
            found.append((base + at, 1, I64, ()))
        case _:
            raise values.Unsendable("compiled code can't return this output: only arrays and numbers")


def _address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def _count(shape: list[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
