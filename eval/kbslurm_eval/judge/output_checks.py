"""Checks of an output's numbers: whether they are finite, whether and by how much they differ."""

from __future__ import annotations

import array
import cmath
import math
from typing import Any

from kbslurm_eval.shared.values import array_kind, imported, pack


def finite(value: Any) -> bool:
    """Whether no number in an output is NaN or infinite."""
    match value:
        case float():
            return math.isfinite(value)
        case complex():
            return cmath.isfinite(value)
        case array.array():
            return value.typecode not in "fd" or all(map(math.isfinite, value))
        case list() | tuple():
            return all(map(math.isfinite, value)) if set(map(type, value)) == {float} else all(map(finite, value))
        case dict():
            return all(map(finite, value.values()))
        case _:
            return _finite_array(value)


def stretched(value: Any, expected: Any, factor: float) -> Any:
    """An output whose difference from the reference's answer is so many times as large; numbers with a point only.
    TypeError or ValueError where the two can't be compared place by place."""
    match value:
        case bool() | int() | str() | bytes() | None:
            return value
        case float() | complex():
            return expected + (value - expected) * factor
        case array.array():
            if value.typecode not in "fd":
                return value
            each = zip(value, expected, strict=True)
            return array.array(value.typecode, [e + (v - e) * factor for v, e in each])
        case list() | tuple():
            return type(value)([stretched(v, e, factor) for v, e in zip(value, expected, strict=True)])
        case dict():
            return {name: stretched(v, expected[name], factor) for name, v in value.items()}
        case _ if array_kind(value) == "numpy" and value.dtype.kind in "fc":
            return (expected + (value - expected) * factor).astype(value.dtype)
        case _ if array_kind(value) == "torch" and value.is_floating_point():
            return (expected.double() + (value.double() - expected.double()) * factor).to(value.dtype)
        case _:
            return value


def differs(value: Any, expected: Any) -> bool:
    """Whether two packed values differ in any byte."""
    return pack(value) != pack(expected)


def finite_where(value: Any, expected: Any) -> bool:
    """Whether every number of an output is finite whose counterpart in the reference's answer is, place by place."""
    match value:
        case float() | complex():
            return cmath.isfinite(value) or not finite(expected)
        case array.array():
            return value.typecode not in "fd" or all(map(_fits_finite, value, expected))
        case list() | tuple():
            return len(value) == len(expected) and all(map(finite_where, value, expected))
        case dict():
            return value.keys() == expected.keys() and all(finite_where(v, expected[k]) for k, v in value.items())
        case _:
            return _finite_array(value) or _finite_array_where(value, expected)


def _fits_finite(value: float, expected: float) -> bool:
    return math.isfinite(value) or not math.isfinite(expected)


def _finite_array_where(value: Any, expected: Any) -> bool:
    kind = array_kind(value)
    if kind != array_kind(expected) or tuple(value.shape) != tuple(expected.shape):
        return False
    library = imported(kind or "")
    if kind == "torch" and value.element_size() == 1:
        value, expected = value.float(), expected.float()
    return not bool((~library.isfinite(value) & library.isfinite(expected)).any())


def _finite_array(value: Any) -> bool:
    match array_kind(value):
        case "numpy" if value.dtype.kind in "fc":
            return bool(imported("numpy").isfinite(value).all())
        case "torch" if value.is_floating_point() or value.is_complex():
            # not everything is implemented for 8-bit floats
            wide = value.float() if value.element_size() == 1 else value
            return bool(imported("torch").isfinite(wide).all())
        case _:
            return True
