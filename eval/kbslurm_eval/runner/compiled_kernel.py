"""Problems whose submissions are C++ or CUDA: what the builder is told to compile, how a runner calls the library with
pointers into the link's own memory, and how the judge calls a reference that is written in C++, too.

A call's arrays are those of the packed input, in order: of lists, tuples and dicts what is in them, a list of whole
numbers as 64-bit integers and one of floats as doubles, a single number as an array without dimensions, text as its
bytes. Outputs are the declared layout's places. Nothing is copied on the way, but tensors of a GPU.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kbslurm_eval.build import cpp_sources
from kbslurm_eval.shared import values
from kbslurm_eval.shared.runner_link import Status
from kbslurm_eval.shared.wire import Manifest

from . import device_arrays

LIBRARY = "kernel.so"
SAID_CAP = 2000

BOOL, U8, I8, I16, U16, I32, U32, I64, U64, F16, BF16, F32, F64, C64, C128, OTHER = range(1, 17)
_OF_ARRAY = {"b": I8, "B": U8, "h": I16, "H": U16, "i": I32, "I": U32, "l": I64, "L": U64, "q": I64, "Q": U64,
             "f": F32, "d": F64}  # fmt: skip
_OF_NUMPY = {"b1": BOOL, "u1": U8, "i1": I8, "i2": I16, "u2": U16, "i4": I32, "u4": U32, "i8": I64, "u8": U64,
             "f2": F16, "f4": F32, "f8": F64, "c8": C64, "c16": C128}  # fmt: skip
_OF_TORCH = {"bool": BOOL, "uint8": U8, "int8": I8, "int16": I16, "int32": I32, "int64": I64, "float16": F16,
             "bfloat16": BF16, "float32": F32, "float64": F64, "complex64": C64, "complex128": C128}  # fmt: skip
_Place = tuple[int, int, int, tuple[int, ...]]  # address, elements, type, shape


class Array(ctypes.Structure):
    """`kb_array` of the header."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_longlong),
        ("dtype", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_longlong)),
    ]


# --------------------------------------------------------------------------------------------- for the builder


def recipe(manifest: Manifest) -> dict[str, Any]:
    """What a builder needs to make the submission's library. It names no case, no seed and no reference."""
    build = manifest.build
    files = {name: manifest.files[name] for name in manifest.runner_files if name in manifest.files}
    call = str(manifest.config.get("call", "custom_kernel"))
    unit = cpp_sources.call_unit(manifest.entry, build.adapter, call)
    return {
        **_common(manifest),
        "files": {**files, manifest.entry: manifest.source},
        "unit": unit,
        "entry": manifest.entry,
        "sources": [name for name in build.sources if name in files],
    }


def reference_recipe(manifest: Manifest) -> dict[str, Any]:
    """The same for the problem's own C++."""
    files = {name: text for name, text in manifest.files.items() if not name.endswith(".py")}
    unit = cpp_sources.reference_unit(manifest.build.adapter)
    return {**_common(manifest), "files": files, "unit": unit, "entry": manifest.reference, "sources": []}


def _common(manifest: Manifest) -> dict[str, Any]:
    build = manifest.build
    return {
        "gpu": manifest.gpu,
        "include_dirs": list(build.include_dirs),
        "defines": list(build.defines),
        "flags": list(build.flags),
        "library": LIBRARY,
        "header": cpp_sources.HEADER,
        "host_cuda": cpp_sources.HOST_CUDA,
    }


# ----------------------------------------------------------------------------------------------- for the runner


@dataclass(kw_only=True)
class _Held:
    """The arrays of one message, and what must stay alive as long as they are used."""

    arrays: Any
    count: int
    kept: list[Any]
    devices: list[tuple[Any, int, int]]  # tensors of a GPU, and where their bytes belong
    fetched: list[tuple[int, int, int]]  # addresses on a device, and where the bytes there belong
    wholes: list[tuple[int, int]]  # whole numbers, written as 64 bits, and how wide their places are


class Kernel:
    """A submission's library, called with pointers into the link's memory."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._call = self._library.kb_call
        self._call.restype = ctypes.c_int
        self._said = ctypes.create_string_buffer(SAID_CAP)
        self._outputs: dict[tuple[int, int, int], _Held] = {}
        self.before: Callable[[], None] | None = None  # what happens between the last preparation and the call

    def answers_with(self, layout: values.Layout, view: memoryview, out: memoryview) -> tuple[int, str]:
        """One call: a status of the link, and a text where it isn't OK."""
        given = flattened(view)
        place = _address(out)
        side = side_here()
        key = (id(layout), place, 0 if side is None else side.version)
        held = self._outputs.get(key)
        if held is None:
            held = self._outputs[key] = outputs_of(layout, out)
        self._said[0] = b"\0"
        if self.before is not None:
            self.before()
        code = self._call(given.arrays, given.count, held.arrays, held.count, self._said, SAID_CAP)
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


def side_here() -> device_arrays.Side | None:
    """Who has the arrays of the device in this runner, when it has one."""
    side = values.device_side
    return side if isinstance(side, device_arrays.Side) else None


def flattened(view: memoryview) -> _Held:
    """The arrays of a packed input, each where it lies."""
    length, start = struct.unpack_from("<QQ", view, 0)
    found: list[_Place] = []
    kept: list[Any] = [view]
    _walk(json.loads(bytes(view[16 : 16 + length])), _address(view) + start, found, kept, view[start:])
    return _held(found, kept)


def _walk(node: Any, base: int, found: list[_Place], kept: list[Any], view: Any) -> None:
    match node:
        case ["l" | "t", inner]:
            for item in inner:
                _walk(item, base, found, kept, view)
        case ["d", pairs]:
            for _, item in pairs:
                _walk(item, base, found, kept, view)
        case ["q" | "f" as code, at, count]:
            found.append((base + at, count, I64 if code == "q" else F64, (count,)))
        case ["a", code, at, size]:
            count = size // array.array(code).itemsize
            found.append((base + at, count, _OF_ARRAY.get(code, OTHER), (count,)))
        case ["b" | "B", at, size]:
            found.append((base + at, size, U8, (size,)))
        case ["n", dtype, shape, at, order]:
            found.append(_numpy(dtype, shape, at, order, base, kept, view))
        case ["s", dtype, at]:
            found.append((base + at, 1, _OF_NUMPY.get(dtype[1:], OTHER), ()))
        case ["T", name, shape, at, order, device]:
            if device == "cpu" and order == sorted(order):
                found.append((base + at, _count(shape), _OF_TORCH.get(name, OTHER), tuple(shape)))
            else:
                tensor = values.made(node, view).contiguous()
                kept.append(tensor)
                found.append((tensor.data_ptr(), tensor.numel(), _OF_TORCH.get(name, OTHER), tuple(tensor.shape)))
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
            raise values.Unsendable("an input that compiled code can't be given")


def _described(node: list[Any], *, packed: bool = False) -> tuple[int, int, tuple[int, ...]]:
    """How many elements of what type in what shape an array of the device has."""
    match node:
        case ["n", dtype, shape, *_]:
            return _count(shape), _OF_NUMPY.get(dtype[1:], OTHER), tuple(shape)
        case ["T", name, shape, *_]:
            return _count(shape), _OF_TORCH.get(name, OTHER), tuple(shape)
        case ["a", code, _, count]:  # a packed one says how many bytes
            count //= array.array(code).itemsize if packed else 1
            return count, _OF_ARRAY.get(code, OTHER), (count,)
        case [code, _, count]:
            return count, I64 if code == "q" else F64, (count,)
        case _:
            raise values.Unsendable("an array that no device has")


def _numpy(dtype: str, shape: list[int], at: int, order: list[int], base: int, kept: list[Any], view: Any) -> _Place:
    code = _OF_NUMPY.get(dtype[1:], OTHER)
    if order == sorted(order):
        return base + at, _count(shape), code, tuple(shape)
    dense = values.made(["n", dtype, shape, at, order], view).copy(order="C")
    kept.append(dense)
    return int(dense.ctypes.data), dense.size, code, tuple(dense.shape)


def _inline(blob: bytes, code: int, kept: list[Any]) -> _Place:
    buffer = ctypes.create_string_buffer(blob, max(1, len(blob)))
    kept.append(buffer)
    return ctypes.addressof(buffer), 1, code, ()


def outputs_of(layout: values.Layout, out: memoryview) -> _Held:
    """The places of a declared layout, as arrays."""
    found: list[_Place] = []
    kept: list[Any] = [out]
    held = _Held(arrays=None, count=0, kept=kept, devices=[], fetched=[], wholes=[])
    _lay(layout.tree, _address(out), found, held)
    return _held(found, kept, held)


def _lay(node: Any, base: int, found: list[_Place], held: _Held) -> None:
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
            found.append((base + at, count, _OF_ARRAY.get(code, OTHER), (count,)))
        case ["n", dtype, shape, at, _]:
            found.append((base + at, _count(shape), _OF_NUMPY.get(dtype[1:], OTHER), tuple(shape)))
        case ["s", dtype, at]:
            found.append((base + at, 1, _OF_NUMPY.get(dtype[1:], OTHER), ()))
        case ["T", name, shape, at, size, device]:
            if device == "cpu":
                found.append((base + at, _count(shape), _OF_TORCH.get(name, OTHER), tuple(shape)))
                return
            tensor = values.empty_tensor(name, shape, device)
            held.kept.append(tensor)
            held.devices.append((tensor, at, size))
            found.append((tensor.data_ptr(), _count(shape), _OF_TORCH.get(name, OTHER), tuple(shape)))
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
        case ["i", at, width]:
            held.wholes.append((at, width))
            found.append((base + at, 1, I64, ()))
        case _:
            raise values.Unsendable("an output that compiled code can't give: it gives arrays and numbers")


def _held(found: list[_Place], kept: list[Any], like: _Held | None = None) -> _Held:
    arrays = (Array * max(1, len(found)))()
    for into, (at, size, code, shape) in zip(arrays, found, strict=False):
        dims = (ctypes.c_longlong * max(1, len(shape)))(*shape)
        kept.append(dims)
        into.data, into.size, into.dtype, into.ndim = at or None, size, code, len(shape)
        into.shape = ctypes.cast(dims, ctypes.POINTER(ctypes.c_longlong))
    devices, fetched, wholes = ([], [], []) if like is None else (like.devices, like.fetched, like.wholes)
    return _Held(arrays=arrays, count=len(found), kept=kept, devices=devices, fetched=fetched, wholes=wholes)


def _address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def _count(shape: list[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


# ------------------------------------------------------------------- for the process that a reference runs in: aside.py


class _Param(ctypes.Structure):
    _fields_ = [("real", ctypes.c_double), ("whole", ctypes.c_longlong), ("text", ctypes.c_char_p)]


class CompiledTrouble(RuntimeError):
    """The reference's own code says that it can't."""


def _loaded(library: bytes) -> ctypes.CDLL:
    """From memory: the file system that the judge could write to may not let a library be loaded from it."""
    fd = os.memfd_create("reference", os.MFD_CLOEXEC)
    with os.fdopen(fd, "wb", closefd=False) as file:
        file.write(library)
    try:
        return ctypes.CDLL(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


class Compiled:
    """A reference in C++. Inputs and outputs are lists of `array.array`."""

    def __init__(self, text: bytes, names: list[str]) -> None:
        library = self._library = _loaded(text)
        self._names = names
        for name in ("kb_generate", "kb_answer"):
            getattr(library, name).restype = ctypes.c_void_p
        library.kb_leaf.restype = ctypes.c_void_p
        self._said = ctypes.create_string_buffer(SAID_CAP)

    def generate(self, params: Mapping[str, Any]) -> list[Any]:
        """What generate_input gives for these parameters."""
        if missing := [n for n in self._names if n not in params]:
            raise CompiledTrouble(f"generate_input needs {missing[0]}, which the case lacks")
        given = (_Param * max(1, len(self._names)))()
        for into, name in zip(given, self._names, strict=False):
            into.real, into.whole, into.text = _param(params[name])
        return self._kept(self._library.kb_generate(given, self._said, SAID_CAP))

    def answer(self, data: list[Any]) -> list[Any]:
        """The reference's own answer."""
        given = _of_arrays(data)
        return self._kept(self._library.kb_answer(given.arrays, given.count, self._said, SAID_CAP))

    def check(self, first: list[Any], second: list[Any]) -> tuple[bool, str]:
        """check_implementation, whichever way round it is."""
        one, two = _of_arrays(first), _of_arrays(second)
        code = self._library.kb_check(one.arrays, one.count, two.arrays, two.count, self._said, SAID_CAP)
        text = self._said.value.decode("utf-8", "replace")
        if code not in (10, 11):
            raise CompiledTrouble(text or "check_implementation failed")
        return code == 10, text if code == 11 else ""

    def _kept(self, handle: int | None) -> list[Any]:
        if not handle:
            raise CompiledTrouble(self._said.value.decode("utf-8", "replace") or "it failed")
        kept = ctypes.c_void_p(handle)
        try:
            return [self._leaf(kept, n) for n in range(self._library.kb_leaves(kept))]
        finally:
            self._library.kb_free(kept)

    def _leaf(self, kept: ctypes.c_void_p, number: int) -> Any:
        code, size = ctypes.c_char(), ctypes.c_longlong()
        at = self._library.kb_leaf(kept, number, ctypes.byref(code), ctypes.byref(size))
        made = array.array(code.value.decode("ascii"))
        if size.value:
            made.frombytes(ctypes.string_at(at, size.value))
        return made


def _param(value: Any) -> tuple[float, int, bytes | None]:
    if isinstance(value, str):
        return 0.0, 0, value.encode()
    if isinstance(value, float):
        return value, int(value), None
    if isinstance(value, int):
        return float(value), int(value), None
    raise CompiledTrouble("a reference in C++ takes numbers, flags and texts")


def _of_arrays(data: list[Any]) -> _Held:
    found: list[_Place] = []
    for item in data:
        at, count = item.buffer_info()
        found.append((at, count, _OF_ARRAY.get(item.typecode, OTHER), (count,)))
    return _held(found, [data])
