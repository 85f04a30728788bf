"""Checks of an output's numbers: whether they are finite, whether and by how much they differ."""

from __future__ import annotations

import array
import cmath
import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
# the distance from 1 to the next number
LAST_DIGIT = (("float8", 2.0**-2), ("bfloat16", 2.0**-7), ("float16", 2.0**-10), ("float32", 2.0**-23),
              ("float", 2.0**-52), ("complex32", 2.0**-10), ("complex64", 2.0**-23), ("complex", 2.0**-52))  # fmt: skip
MOST_OFF = 0.5  # relatively, of a number that is smaller than what it may be off by, where others don't tell a size
OF_SIZE, ENOUGH = 10, 16  # so many relative tolerances of their size; fewer numbers may all be small by chance
LOOKED_AT = 1 << 16  # numbers of which the tenth part is looked for
PIECE, LONGEST_NUMBER = 1 << 20, 64
# squares of such numbers are infinite in single precision, and a check that divides by them finds NaN
FAR_TOO_LARGE, BESIDE = 1e18, 1e3


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
    value: Any,
    expected: Any,
    tolerance: Tolerance,
    where: str = "the output",
    norm: Callable[[], float] = lambda: 0.0,
) -> str:
    """Where an output differs from the reference's answer by more than the tolerance; empty if nowhere. `norm`: that
    of the call's input, asked for only where it matters."""
    sizes = {} if tolerance.atol is not None else sizes_together(expected)
    return _Comparison(tolerance=tolerance, sizes=sizes, norm=norm).difference(value, expected, where)


def sizes_together(expected: Any) -> dict[str, Size | None]:
    """How large the numbers of an answer are that stand alone, or too few together to tell: all those of one type as
    if they were one array."""
    pieces: dict[str, list[Any]] = {}
    for name, numbers in _few(expected):
        pieces.setdefault(name, []).append(numbers)
    return {name: _size_together(name.partition(" ")[0], parts) for name, parts in pieces.items()}


def type_name(kind: str, numbers: Any) -> str:
    """Under which of those names numbers are."""
    return kind if kind == "plain" else f"{kind} {numbers.dtype}"


def _few(value: Any) -> Iterator[tuple[str, Any]]:
    """Numbers with a point that stand alone or in arrays too small to tell their size."""
    match value:
        case float() | complex():
            yield "plain", [value]
        case list() | tuple() if with_point(value):
            if len(value) < ENOUGH:
                yield "plain", _those_with_point(value)
        case list() | tuple():
            for item in () if set(map(type, value)) <= {int, bool, str, bytes} else value:
                yield from _few(item)
        case dict():
            for item in value.values():
                yield from _few(item)
        case array.array() if value.typecode in "fd" and len(value) < ENOUGH:
            yield "plain", list(value)
        case _ if (kind := array_kind(value)) in ("numpy", "torch"):
            if math.prod(map(int, value.shape)) < ENOUGH and _has_point(kind, value):
                yield type_name(kind, value), value


def _size_together(kind: str, parts: list[Any]) -> Size | None:
    if kind == "plain":
        return size_of(kind, list(itertools.chain.from_iterable(parts)))
    library = imported(kind)
    flat = [part.reshape(-1) for part in parts]
    return size_of(kind, library.concatenate(flat) if kind == "numpy" else library.cat([one.cpu() for one in flat]))


def with_point(items: Sequence[Any]) -> bool:
    """Whether these are numbers of Python's, some of them with a point: a whole one among them is one of those."""
    kinds = set(map(type, items))
    return kinds <= {int, float, complex} and bool(kinds & {float, complex})


def _those_with_point(items: Sequence[Any]) -> list[Any]:
    return [one for one in items if type(one) is not int]


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """One answer, compared with the reference's."""

    tolerance: Tolerance
    sizes: Mapping[str, Size | None]
    norm: Callable[[], float]

    def difference(self, value: Any, expected: Any, where: str) -> str:
        match expected:
            case list() | tuple():
                if not isinstance(value, list | tuple) or len(value) != len(expected):
                    return f"{where} isn't a sequence of {len(expected)} items"
                pairs = enumerate(zip(value, expected, strict=True))
                if with_point(expected):
                    size = size_of("plain", _those_with_point(expected)) or self.sizes.get("plain")
                    each = (self._number(v, e, f"{where}[{n}]", size) for n, (v, e) in pairs)
                else:
                    each = (self.difference(v, e, f"{where}[{n}]") for n, (v, e) in pairs)
                return next((said for said in each if said), "")
            case dict():
                if not isinstance(value, dict) or value.keys() != expected.keys():
                    return f"{where} has other keys than expected"
                each = (self.difference(value[k], e, f"{where}[{k!r}]") for k, e in expected.items())
                return next((said for said in each if said), "")
            case array.array():
                if not isinstance(value, Iterable) or getattr(value, "shape", None) == ():
                    return f"{where} isn't an array of {len(expected)} numbers"
                return self.difference(list(value), list(expected), where)
            case float() | complex():
                return self._number(value, expected, where, self.sizes.get("plain"))
            case _ if (kind := array_kind(expected)) in ("numpy", "torch"):
                return self._of_arrays(kind, value, expected, where)
            case _ if array_kind(value) is not None and (
                isinstance(expected, bytes | bytearray) or math.prod(getattr(value, "shape", ())) != 1
            ):
                return f"{where} is a {type(value).__name__}; {expected!r} was expected"[:500]
            case _:
                return "" if value == expected else f"{where} is {value!r}; {expected!r} was expected"[:500]

    def _number(self, value: Any, expected: Any, where: str, size: Size | None) -> str:
        rtol, atol = self.tolerance.of("float32", size=size)
        if type(expected) is int:  # a float for it may be off by what one for 0 may be, and a whole number isn't
            rtol, atol = 0.0, 0.0 if type(value) is int else min(atol, self.tolerance.of("float32")[1])
        far = not isinstance(value, int | float | complex) or not cmath.isclose(
            value, expected, rel_tol=rtol, abs_tol=atol
        )
        if not far and size is None and 0 < abs(expected) <= atol and abs(value - expected) > MOST_OFF * abs(expected):
            far = abs(expected) > self._rounding("float32")
        same_nan = isinstance(value, float) and cmath.isnan(expected) and math.isnan(value)
        return f"{where} is {value!r}; {expected!r} was expected" if far and not same_nan else ""

    def _rounding(self, name: str) -> float:
        """Up to where numbers of this type may be what rounding leaves of the input, and no answer. Without end where
        the author says what a number may be off by."""
        if self.tolerance.atol is not None:
            return math.inf
        return next((digit for kind, digit in LAST_DIGIT if kind in name), 0.0) * self.norm()

    def _of_arrays(self, kind: str, value: Any, expected: Any, where: str) -> str:
        if array_kind(value) != kind or tuple(value.shape) != tuple(expected.shape):
            return f"{where} has another type or shape than expected"
        library, whole = imported(kind), _is_whole(kind, expected)
        size = None
        if not whole and self.tolerance.atol is None:
            size = size_of(kind, expected) or self.sizes.get(type_name(kind, expected))
        name = str(expected.dtype)
        rtol, atol = self.tolerance.of(name, whole=whole, size=size)
        if kind == "torch":
            value, expected = value.cpu(), expected.cpu()
        if (rtol, atol) == (0, 0) and whole:
            # as whole numbers, too: in floating point 64 bits are 53
            exact = value.to(expected.dtype) if kind == "torch" else _as_whole(value, expected.dtype)
            return _told(kind, (value != expected) | (exact != expected), value, expected, where)
        if whole and value.dtype == expected.dtype and "bool" not in str(expected.dtype):
            apart = library.maximum(value, expected) - library.minimum(value, expected)  # negative where it is too much
            return _told(kind, (apart < 0) | (apart > int(atol)), value, expected, where)
        if kind == "torch":
            value, expected = (t.to(library.complex128 if t.is_complex() else library.float64)
                               for t in (value, expected))  # fmt: skip
        far = ~library.isclose(value, expected, rtol=rtol, atol=atol, equal_nan=True)
        if not whole and size is None:
            with imported("numpy").errstate(all="ignore") if kind == "numpy" else contextlib.nullcontext():
                many = abs(expected)
                off = (many > 0) & (many <= atol) & (abs(value - expected) > MOST_OFF * many) & ~far
            if bool(off.any()):
                far = far | (off & (many > self._rounding(name)))
        return _told(kind, far, value, expected, where)


def norm_of(value: Any) -> float:
    """The norm of all numbers with a point in an input."""
    return math.hypot(*_norms(value))


def _norms(value: Any) -> Iterator[float]:
    match value:
        case list() | tuple() if with_point(value):
            yield _norm("plain", value)
        case list() | tuple():
            for item in value:
                yield from _norms(item)
        case dict():
            for item in value.values():
                yield from _norms(item)
        case array.array() if value.typecode in "fd":
            yield _norm("plain", value)
        case _ if (kind := array_kind(value)) in ("numpy", "torch"):
            if _has_point(kind, value):
                yield _norm(kind, value.reshape(-1))
        case float() | complex():
            yield _norm("plain", [value])
        case _ if hasattr(value, "__dict__"):
            yield from _norms(vars(value))


def _norm(kind: str, flat: Any) -> float:
    pieces = (_part_of(kind, flat[start : start + PIECE]) for start in range(0, len(flat), PIECE))
    return math.hypot(*(part.top * math.sqrt(part.squares) for part in pieces))


def _has_point(kind: str, numbers: Any) -> bool:
    if kind == "torch":
        return bool(numbers.is_floating_point() or numbers.is_complex())
    return numbers.dtype.kind in "fc"


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
        case str() | bytes():
            return not _reads_as_no_finite_number(value)
        case _:
            return _finite_array(value)


def largest(value: Any) -> float:
    """The largest of all an output's numbers, sign aside, those that aren't finite left out."""
    match value:
        case bool() | str() | bytes() | None:
            return 0.0
        case int() | float() | complex():
            size = abs(value)
            return float(min(size, FAR_TOO_LARGE)) if isinstance(size, int) else size if math.isfinite(size) else 0.0
        case array.array():
            return _largest_of(value) if value.typecode in "fd" else 0.0
        case list() | tuple():
            return _largest_of(value) if set(map(type, value)) == {float} else max(map(largest, value), default=0.0)
        case dict():
            return max(map(largest, value.values()), default=0.0)
        case _ if (kind := array_kind(value)) in ("numpy", "torch") and _has_point(kind, value):
            if (top := _top_of_finite(kind, value)) is not None:
                return top
            flat = value.reshape(-1)
            parts = (_part_of(kind, flat[start : start + PIECE]).top for start in range(0, len(flat), PIECE))
            return max(parts, default=0.0)
        case _:
            return 0.0


def top_of_finite(value: Any) -> float | None:
    """The largest number of an output of arrays alone, sign aside, by one look that also shows whether all are finite;
    None where they aren't, or where that takes looking at them otherwise."""
    if isinstance(value, list | tuple):
        found = 0.0
        for item in value:
            if (top := top_of_finite(item)) is None:
                return None
            found = max(found, top)
        return found if value else None
    if (kind := array_kind(value)) not in ("numpy", "torch"):
        return None
    try:
        return _top_of_finite(kind, value)
    except Exception:  # noqa: BLE001 - of whatever library: it can be looked at otherwise
        return None


def _top_of_finite(kind: str, value: Any) -> float | None:
    """The same of an array by its two ends, without another one; None where they aren't finite or have no order."""
    if kind == "numpy" and value.dtype.kind == "f" and value.size:
        with imported("numpy").errstate(all="ignore"):
            top = max(float(value.max()), -float(value.min()))
    elif kind == "torch" and value.is_floating_point() and value.element_size() > 1 and value.numel():
        least, most = value.detach().aminmax()
        top = max(float(most), -float(least))
    else:
        return None
    return top if math.isfinite(top) else None


def _largest_of(numbers: Iterable[float]) -> float:
    return max(filter(math.isfinite, map(abs, numbers)), default=0.0)


def _reads_as_no_finite_number(text: str | bytes) -> bool:
    """Whether Python, or numpy, makes NaN or an infinity of this text."""
    if len(text) > LONGEST_NUMBER:
        return False
    try:
        return not math.isfinite(float(text))
    except ValueError:
        return False


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
        case str() | bytes():
            return finite(value) or not finite(expected)
        case _:
            return _finite_array(value) or _finite_array_where(value, expected)


def _fits_finite(value: float, expected: float) -> bool:
    return math.isfinite(value) or not math.isfinite(expected)


def _finite_array_where(value: Any, expected: Any) -> bool:
    kind = array_kind(value)
    if kind != array_kind(expected) or tuple(value.shape) != tuple(expected.shape):
        return False
    if kind == "numpy" and value.dtype.kind in "US":
        return all(map(finite_where, value.reshape(-1).tolist(), expected.reshape(-1).tolist()))
    library = imported(kind or "")
    if kind == "torch" and value.element_size() == 1:
        value, expected = value.float(), expected.float()
    return not bool((~library.isfinite(value) & library.isfinite(expected)).any())


def _finite_array(value: Any) -> bool:
    match array_kind(value):
        case "numpy" if value.dtype.kind in "fcMm":  # times and durations may be none, too
            return bool(imported("numpy").isfinite(value).all())
        case "numpy" if value.dtype.kind in "US":
            return all(map(finite, value.reshape(-1).tolist()))
        case "torch" if value.is_floating_point() or value.is_complex():
            # not everything is implemented for 8-bit floats
            wide = value.float() if value.element_size() == 1 else value
            return bool(imported("torch").isfinite(wide).all())
        case _:
            return True
