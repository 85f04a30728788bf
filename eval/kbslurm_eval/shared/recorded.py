"""Tensors that were recorded, as files of a problem in the safetensors format.

The format: eight bytes with the length of a JSON header, the header (for each tensor its dtype, shape and place), and
the bytes. A manifest is text, so such a file travels compressed and in base64.
"""

from __future__ import annotations

import array
import base64
import binascii
import importlib
import json
import math
import struct
import sys
import zlib
from collections.abc import Callable, Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SUFFIX = ".safetensors"
CAP = 64 << 20  # of one file, unpacked
HEADER_CAP = 1 << 20
TENSORS_CAP = 10_000
# the format's name: bytes per element, torch's name, numpy's name, the array module's code
DTYPES: Mapping[str, tuple[int, str, str | None, str | None]] = {
    "BOOL": (1, "bool", "bool", None),
    "U8": (1, "uint8", "uint8", "B"),
    "I8": (1, "int8", "int8", "b"),
    "U16": (2, "uint16", "uint16", "H"),
    "I16": (2, "int16", "int16", "h"),
    "U32": (4, "uint32", "uint32", "I"),
    "I32": (4, "int32", "int32", "i"),
    "U64": (8, "uint64", "uint64", "Q"),
    "I64": (8, "int64", "int64", "q"),
    "F16": (2, "float16", "float16", None),
    "BF16": (2, "bfloat16", None, None),
    "F32": (4, "float32", "float32", "f"),
    "F64": (8, "float64", "float64", "d"),
    "F8_E4M3": (1, "float8_e4m3fn", None, None),
    "F8_E5M2": (1, "float8_e5m2", None, None),
}


class NotRecorded(ValueError):
    """What is wrong with a file of recorded tensors."""


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 6)).decode("ascii")


def unpacked(text: str) -> bytes:
    """The file's bytes, or NotRecorded."""
    try:
        opened = zlib.decompressobj()
        data = opened.decompress(base64.b64decode(text, validate=True), CAP)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise NotRecorded(f"can't be unpacked: {error}") from None
    if not opened.eof:
        raise NotRecorded(f"is incomplete, or larger than {CAP:,} bytes")
    return data


def header(data: bytes) -> dict[str, tuple[str, tuple[int, ...], int, int]]:
    """Each tensor's dtype, shape and place in these bytes, or NotRecorded: nothing overlaps, and nothing is left."""
    if len(data) < 8:
        raise NotRecorded("is shorter than a header")
    (length,) = struct.unpack_from("<Q", data, 0)
    if length > min(HEADER_CAP, len(data) - 8):
        raise NotRecorded("has a header that is longer than it may be")
    try:
        told = json.loads(data[8 : 8 + length].decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise NotRecorded(f"has a header that isn't JSON: {error}") from None
    if not isinstance(told, dict) or len(told) > TENSORS_CAP:
        raise NotRecorded("has a header that isn't a table of tensors")
    start = 8 + length
    found = {name: _row(name, row, start, len(data)) for name, row in told.items() if name != "__metadata__"}
    at = start
    for name, (_, _, begin, end) in sorted(found.items(), key=lambda item: item[1][2:]):
        if begin != at:
            raise NotRecorded(f"has a gap or an overlap before {name!r}")
        at = end
    if at != len(data):
        raise NotRecorded("has bytes that belong to no tensor")
    return found


def _row(name: str, row: Any, start: int, size: int) -> tuple[str, tuple[int, ...], int, int]:
    match row:
        case {"dtype": str() as dtype, "shape": list() as shape, "data_offsets": [int() as begin, int() as end]}:
            pass
        case _:
            raise NotRecorded(f"has a tensor {name!r} without dtype, shape and place")
    if dtype not in DTYPES:
        raise NotRecorded(f"has a tensor {name!r} of the unknown dtype {dtype}")
    if not all(type(n) is int and 0 <= n < 1 << 48 for n in shape):
        raise NotRecorded(f"has a tensor {name!r} with an invalid shape")
    if not 0 <= begin <= end <= size - start or end - begin != math.prod(shape) * DTYPES[dtype][0]:
        raise NotRecorded(f"has a tensor {name!r} whose bytes don't match its shape")
    return dtype, tuple(shape), start + begin, start + end


def tensors(data: bytes, device: str = "cpu") -> dict[str, Any]:
    """The tensors by name: of torch where that is loaded, else numpy arrays, else arrays of the standard library."""
    torch, numpy = sys.modules.get("torch"), _numpy()
    made: dict[str, Any] = {}
    for name, (dtype, shape, begin, end) in header(data).items():
        _, of_torch, of_numpy, code = DTYPES[dtype]
        part = bytearray(data[begin:end])
        if torch is not None:
            kind = getattr(torch, of_torch)
            flat = torch.frombuffer(part, dtype=kind) if part else torch.empty(0, dtype=kind)
            made[name] = flat.reshape(shape).to(device)
        elif numpy is not None and of_numpy is not None:
            made[name] = numpy.frombuffer(part, dtype=of_numpy).reshape(shape)
        elif code is not None:
            made[name] = array.array(code, bytes(part))
        else:
            raise NotRecorded(f"has a tensor {name!r} of dtype {dtype}, which needs torch")
    return made


def _numpy() -> Any:
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None


def reader(files: Mapping[str, str], device: str) -> Callable[[str], dict[str, Any]]:
    """What a problem gets as `recorded`: gives the tensors of one of its files, each file read once."""
    read: dict[str, bytes] = {}

    def recorded(name: str) -> dict[str, Any]:
        if name not in read:
            if name not in files or not name.endswith(SUFFIX):
                raise NotRecorded(f"{name} isn't a {SUFFIX} file of this problem")
            read[name] = unpacked(files[name])
        try:
            return tensors(read[name], device)
        except NotRecorded as error:
            raise NotRecorded(f"{name} {error}") from None

    return recorded
