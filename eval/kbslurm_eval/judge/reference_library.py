"""A problem's reference in C++, loaded into the process that it runs in: see `compiled_reference`."""

from __future__ import annotations

import array
import ctypes
import os
from collections.abc import Mapping
from typing import Any

from kbslurm_eval.build.c_arrays import OF_ARRAY, OTHER, SAID_CAP, CallArrays, Place, call_arrays


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


class ReferenceLibrary:
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
            raise CompiledTrouble(f"generate_input needs {missing[0]}, which the case doesn't set")
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
    raise CompiledTrouble("a reference in C++ takes numbers, bools and strings")


def _of_arrays(data: list[Any]) -> CallArrays:
    found: list[Place] = []
    for item in data:
        at, count = item.buffer_info()
        found.append((at, count, OF_ARRAY.get(item.typecode, OTHER), (count,)))
    return call_arrays(found, [data])
