"""Checks of an output's numbers: whether they are finite, whether and by how much they differ."""

from __future__ import annotations

import array
import cmath
import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kbslurm_eval.shared.values import array_kind, imported, pack


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far a number may be from the reference's where a problem has no check of its own. None: by its type."""

    rtol: float | None = None
    atol: float | None = None

    def of(self, name: str, *, whole: bool = False, size: Size | None = None) -> tuple[float, float]:
        """The relative and the absolute one for numbers of this type. Of a `whole` number no part counts: 1000 of a
        million elements away is another index. `size`: how large numbers like this one are; where they are all small,
        so is what they may be off by, or zeros would do for them; where nearly all are large, a small one among them is
        what is left of large ones, and as inexact."""
        if whole:
            return 0.0, math.floor(self.atol or 0.0)
        rtol, atol = next((pair for kind, pair in BY_TYPE if kind in name), (0.0, 0.0))
        rtol = rtol if self.rtol is None else self.rtol
        if self.atol is not None:
            return rtol, self.atol
        if size is None:
            return rtol, atol
        return rtol, max(min(atol, OF_SIZE * rtol * size.root_mean_square), rtol * size.least)


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large numbers are: the root of their mean square, and what nine tenths of them are at least."""

    root_mean_square: float
    least: float


# wide enough for sums in another order, and too narrow for the next smaller type
BY_TYPE = (("float8", (0.25, 0.25)), ("bfloat16", (1.6e-2, 1e-2)), ("float16", (1e-3, 1e-3)),
           ("float32", (1e-4, 1e-4)), ("float", (1e-9, 1e-9)),
           ("complex32", (1e-3, 1e-3)), ("complex64", (1e-4, 1e-4)), ("complex", (1e-9, 1e-9)))  # fmt: skip
OF_SIZE, ENOUGH = 10, 16  # so many relative tolerances of their size; fewer numbers may all be small by chance
LOOKED_AT = 1 << 16  # numbers of which the tenth part is looked for
PIECE = 1 << 20


def size_of(kind: str, numbers: Any) -> Size | None:
    """How large these numbers are, those left out that aren't finite; None if they are too few to tell, or are all 0.
    `kind`: whether they are Python's own, numpy's or torch's."""
    many = len(numbers) if kind == "plain" else math.prod(map(int, numbers.shape))
    if many < ENOUGH:
        return None
    flat = numbers if kind == "plain" else numbers.reshape(-1)
    parts = [_part_of(kind, flat[start : start + PIECE]) for start in range(0, many, PIECE)]
    top, count = max(part.top for part in parts), sum(part.count for part in parts)
    if not top or count < ENOUGH:
        return None
    total = math.fsum(part.squares * (part.top / top) ** 2 for part in parts)
    some = flat[:: many // LOOKED_AT | 1]
    sizes = sorted(filter(math.isfinite, map(abs, some) if kind == "plain" else _magnitudes(kind, some).tolist()))
    return Size(root_mean_square=top * math.sqrt(total / count), least=sizes[len(sizes) // 10] if sizes else 0.0)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The largest of some numbers, the sum of all their squares in units of its own, and how many are finite: a square
    itself may be too small or too large for a number."""

    top: float
    squares: float
    count: int


def _part_of(kind: str, numbers: Any) -> _Part:
    if kind == "plain":
        found = [size for size in map(abs, numbers) if math.isfinite(size)]
        top = max(found, default=0.0)
        return _Part(top=top, squares=math.fsum((size / top) ** 2 for size in found) if top else 0.0, count=len(found))
    with imported("numpy").errstate(all="ignore") if kind == "numpy" else contextlib.nullcontext():
        sizes = _magnitudes(kind, numbers)
        is_finite = imported(kind).isfinite(sizes)
        sizes = sizes if bool(is_finite.all()) else sizes[is_finite]
        count = math.prod(map(int, sizes.shape))
        top = float(sizes.max()) if count else 0.0
        return _Part(top=top, squares=float(((sizes / top) ** 2).sum()) if top else 0.0, count=count)


def _magnitudes(kind: str, numbers: Any) -> Any:
    """How far from 0 each of them is, in double precision."""
    library = imported(kind)
    if kind == "numpy":
        return library.abs(numbers).astype("f8")
    flat = numbers.detach()  # some types have no magnitudes
    return flat.to(library.complex128).abs() if flat.is_complex() else flat.to(library.float64).abs()


def tolerance_of(module: Any, config: Mapping[str, Any]) -> Tolerance:
    """What the reference states as RTOL and ATOL."""
    told = {name: getattr(module, name.upper(), None) for name in ("rtol", "atol")}
    return Tolerance(**{n: float(v) for n, v in told.items() if isinstance(v, int | float)})


def difference(
    value: Any, expected: Any, tolerance: Tolerance, where: str = "the output", size: Size | None = None
) -> str:
    """Where an output differs from the reference's answer by more than the tolerance; empty if nowhere. `size`: how
    large the numbers around this one are."""
    match expected:
        case list() | tuple():
            if not isinstance(value, list | tuple) or len(value) != len(expected):
                return f"{where} isn't a sequence of {len(expected)} items"
            size = size_of("plain", expected) if set(map(type, expected)) <= {float, complex} else None
            each = (
                difference(v, e, tolerance, f"{where}[{n}]", size)
                for n, (v, e) in enumerate(zip(value, expected, strict=True))
            )
            return next((said for said in each if said), "")
        case dict():
            if not isinstance(value, dict) or value.keys() != expected.keys():
                return f"{where} has other keys than expected"
            each = (difference(value[k], e, tolerance, f"{where}[{k!r}]") for k, e in expected.items())
            return next((said for said in each if said), "")
        case array.array():
            return difference(list(value), list(expected), tolerance, where)
        case float() | complex():
            rtol, atol = tolerance.of("float32", size=size)
            far = not isinstance(value, int | float | complex) or not cmath.isclose(
                value, expected, rel_tol=rtol, abs_tol=atol
            )
            same_nan = isinstance(value, float) and cmath.isnan(expected) and math.isnan(value)
            return f"{where} is {value!r}; {expected!r} was expected" if far and not same_nan else ""
        case _ if (kind := array_kind(expected)) in ("numpy", "torch"):
            return _array_difference(kind, value, expected, tolerance, where)
        case _:
            return "" if value == expected else f"{where} is {value!r}; {expected!r} was expected"[:500]


def _array_difference(kind: str, value: Any, expected: Any, tolerance: Tolerance, where: str) -> str:
    if array_kind(value) != kind or tuple(value.shape) != tuple(expected.shape):
        return f"{where} has another type or shape than expected"
    library, whole = imported(kind), _is_whole(kind, expected)
    size = None if whole or tolerance.atol is not None else size_of(kind, expected)
    rtol, atol = tolerance.of(str(expected.dtype), whole=whole, size=size)
    if kind == "torch":
        value, expected = value.cpu(), expected.cpu()
    if (rtol, atol) == (0, 0) and whole:
        # as whole numbers, too: in floating point 64 bits are 53
        exact = value.to(expected.dtype) if kind == "torch" else _as_whole(value, expected.dtype)
        return _told(kind, (value != expected) | (exact != expected), value, expected, where)
    if kind == "torch":
        value, expected = (t.to(library.complex128 if t.is_complex() else library.float64)
                           for t in (value, expected))  # fmt: skip
    far = ~library.isclose(value, expected, rtol=rtol, atol=atol, equal_nan=True)
    return _told(kind, far, value, expected, where)


def _as_whole(value: Any, dtype: Any) -> Any:
    with imported("numpy").errstate(all="ignore"):  # what isn't a whole number is told apart already
        return value.astype(dtype)


def _is_whole(kind: str, numbers: Any) -> bool:
    """Whether these are whole numbers or truth values."""
    if kind == "torch":
        return not (numbers.is_floating_point() or numbers.is_complex())
    return numbers.dtype.kind in "iub"


def _told(kind: str, far: Any, value: Any, expected: Any, where: str) -> str:
    """How many of these are too far off, and the first one."""
    wrong = int(far.sum())
    if not wrong:
        return ""
    flat = far.reshape(-1)
    at = int((flat.int() if kind == "torch" else flat).argmax())
    got, want = value.reshape(-1)[at], expected.reshape(-1)[at]
    return f"{wrong} of {flat.shape[0]} numbers of {where} differ; number {at} is {_shown(got)}, not {_shown(want)}"


def _shown(number: Any) -> str:
    plain = number.item()
    return f"{plain:g}" if isinstance(plain, float) else str(plain)


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


def is_empty(value: Any) -> bool:
    """Whether there is no number, and nothing else, in an output."""
    match value:
        case list() | tuple():
            return all(map(is_empty, value))
        case dict():
            return all(map(is_empty, value.values()))
        case array.array() | str() | bytes():
            return not value
        case _ if (kind := array_kind(value)) in ("numpy", "torch"):
            return not (value.numel() if kind == "torch" else value.size)
        case _:
            return value is None


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
