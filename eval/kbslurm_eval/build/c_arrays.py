"""The header's `kb_array` in ctypes, and the numbers of its types."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

SAID_CAP = 2000
BACK = -2  # what `kb_serve` returns where the next message isn't one more call like the last

BOOL, U8, I8, I16, U16, I32, U32, I64, U64, F16, BF16, F32, F64, C64, C128, OTHER = range(1, 17)
OF_ARRAY = {"b": I8, "B": U8, "h": I16, "H": U16, "i": I32, "I": U32, "l": I64, "L": U64, "q": I64, "Q": U64,
             "f": F32, "d": F64}  # fmt: skip
OF_NUMPY = {"b1": BOOL, "u1": U8, "i1": I8, "i2": I16, "u2": U16, "i4": I32, "u4": U32, "i8": I64, "u8": U64,
             "f2": F16, "f4": F32, "f8": F64, "c8": C64, "c16": C128}  # fmt: skip
OF_NUMBER = {"?": BOOL, "q": I64, "d": F64}
OF_TORCH = {"bool": BOOL, "uint8": U8, "int8": I8, "int16": I16, "int32": I32, "int64": I64, "float16": F16,
             "bfloat16": BF16, "float32": F32, "float64": F64, "complex64": C64, "complex128": C128}  # fmt: skip

Place = tuple[int, int, int, tuple[int, ...]]  # address, elements, type, shape


class Array(ctypes.Structure):
    """`kb_array` of the header."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_longlong),
        ("dtype", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_longlong)),
    ]


@dataclass(kw_only=True)
class CallArrays:
    """The arrays of one message, and what must stay alive while they are used."""

    arrays: Any
    count: int
    kept: list[Any]
    devices: list[tuple[Any, int, int]]  # tensors of a GPU, and where their bytes belong
    fetched: list[tuple[int, int, int]]  # device addresses, and where their bytes belong
    wholes: list[tuple[int, int]]  # integers, written as 64 bits, and the width of their types


def call_arrays(found: list[Place], kept: list[Any], like: CallArrays | None = None) -> CallArrays:
    """These places as an array of `kb_array`."""
    arrays = (Array * max(1, len(found)))()
    for into, (at, size, code, shape) in zip(arrays, found, strict=False):
        dims = (ctypes.c_longlong * max(1, len(shape)))(*shape)
        kept.append(dims)
        into.data, into.size, into.dtype, into.ndim = at or None, size, code, len(shape)
        into.shape = ctypes.cast(dims, ctypes.POINTER(ctypes.c_longlong))
    devices, fetched, wholes = ([], [], []) if like is None else (like.devices, like.fetched, like.wholes)
    return CallArrays(arrays=arrays, count=len(found), kept=kept, devices=devices, fetched=fetched, wholes=wholes)
