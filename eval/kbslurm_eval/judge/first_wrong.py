"""Where a wrong answer first differs from the reference's, for the author of a submission: of public tests only.

A hint and no verdict: the problem's check has already said that the answer is wrong, and it may know other right ones
than the reference's. Its cost is bounded, and whatever goes wrong here is no trouble of anybody's.
"""

from __future__ import annotations

import array
import cmath
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kbslurm_eval.judge.output_checks import Size, Tolerance, size_of, sizes_together, type_name
from kbslurm_eval.shared import values
from kbslurm_eval.shared.values import array_kind, imported

NUMBERS_CAP = 1 << 26  # larger answers aren't compared
PIECE = PATTERN_CAP = 1 << 20  # of arrays, so many numbers are compared at once, and so many looked at as a whole
PARTS_CAP = 10_000
PLAIN_CAP = 1 << 20  # so many numbers of Python are looked at
ALL_ZERO = "every one is 0; was the answer written?"
LAST_BLOCK = "all from there to the end are wrong; is the last, partial block handled?"
NEAR = 0.05  # differences up to this may be a matter of precision
# a check that says where already says it better: it knows what it looked for
_SAYS_WHERE = re.compile(r"\b(?:at|index|position|element|row|number|place)[\s#\[(]{0,8}\d|\boutput\[\d", re.IGNORECASE)
LOOKED_AT = 4_000  # characters of a check's message, which may quote an answer as long as its author likes


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One array or list of numbers of an answer, with the reference's."""

    where: str
    got: Any
    want: Any
    kind: str  # "numpy", "torch" or "plain"


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """How one part differs."""

    where: str
    got: Any
    want: Any
    wrong: int
    whole: int
    rtol: float
    atol: float
    pattern: str


def already_told(said: str) -> bool:
    """Whether the check's own message names a place."""
    return _SAYS_WHERE.search(said[:LOOKED_AT]) is not None


def told(got: Any, want: Any, tolerance: Tolerance, packed: bytes | memoryview, *, own: bool = False) -> str:
    """One sentence without its full stop, or nothing where that can't be said. `packed`: the input. `own`: this
    comparison is the problem's check."""
    parts = list(itertools.islice(_parts(got, want, "output", 0), PARTS_CAP + 1))
    if not parts or len(parts) > PARTS_CAP or sum(_count(one) for one in parts) > NUMBERS_CAP:
        return ""
    sizes = sizes_together(want) if tolerance.atol is None else {}
    compared = [_compared(one, tolerance, sizes.get(type_name(one.kind, one.want))) for one in parts]
    wrong = [one for one in compared if one.wrong]
    if not wrong and own:  # it knows more of single numbers
        return ""
    if not wrong:
        one = compared[0]
        near = f"within rtol {one.rtol:g} and atol {one.atol:g} of" if one.rtol or one.atol else "as in"
        return (
            f"the numbers that were compared ({sum(one.whole for one in compared)}) are {near} the reference's answer"
        )
    first = wrong[0]
    many, whole = sum(one.wrong for one in wrong), sum(one.whole for one in compared)
    by = f"differ by more than rtol {first.rtol:g}, atol {first.atol:g}" if first.rtol or first.atol else "differ"
    said = (
        f"the first element that differs from the reference's answer is {first.where}: {_number(first.got)}, not "
        f"{_number(first.want)}; {many} of {whole} {by}"
    )
    pattern = first.pattern or strided_input(packed)
    return f"{said}; {pattern}" if pattern else said


def strided_input(packed: bytes | memoryview) -> str:
    """That an array of this input isn't contiguous, if one isn't: whoever reads it by address alone reads others'
    numbers."""
    found = next(_strided(values.tree(packed), "data", 0), None)
    return f"{found} isn't contiguous: a kernel that takes its address must use its strides" if found else ""


def _strided(node: Any, where: str, depth: int) -> Iterator[str]:
    match node:
        case ["l" | "t", list() as inner] if depth < 4:
            for n, one in enumerate(inner):
                yield from _strided(one, f"{where}[{n}]", depth + 1)
        case ["d", list() as pairs] if depth < 4:
            for key, one in pairs:
                yield from _strided(one, f"{where}[{key!r}]", depth + 1)
        case ["G" | "H", inner]:
            yield from _strided(inner, where, depth + 1)
        case ["n" | "T" | "A" as kind, dtype, list() as shape, _, {"strides": list() as steps}, *_]:
            if steps != _c_strides(shape, 1 if kind == "T" else int(dtype[2:])):
                yield where
        case ["n" | "T" | "A", _, list(), _, list() as order, *_] if order != sorted(order):
            yield where


def _c_strides(shape: list[int], step: int) -> list[int]:
    steps: list[int] = []
    for size in reversed(shape):
        steps.insert(0, step)
        step *= size
    return steps


def _parts(got: Any, want: Any, where: str, depth: int) -> Iterator[_Part]:
    kind = array_kind(want)
    if kind in ("numpy", "torch"):
        if array_kind(got) == kind and tuple(got.shape) == tuple(want.shape):
            yield _Part(where=where, got=got, want=want, kind=kind)
        return
    match want:
        case array.array():
            if isinstance(got, array.array) and len(got) == len(want):
                yield _Part(where=where, got=got, want=want, kind="plain")
        case list() | tuple() if _are_numbers(want):
            if isinstance(got, list | tuple) and len(got) == len(want) and _are_numbers(got):
                yield _Part(where=where, got=got, want=want, kind="plain")
        case list() | tuple():
            if isinstance(got, list | tuple) and len(got) == len(want) and depth < 8:
                for n, (one, other) in enumerate(zip(got, want, strict=True)):
                    yield from _parts(one, other, f"{where}[{n}]", depth + 1)
        case dict():
            if isinstance(got, dict) and depth < 8:
                for key, other in want.items():
                    yield from _parts(got.get(key), other, f"{where}[{key!r}]", depth + 1)
        case bool() | int() | float() | complex():
            if isinstance(got, bool | int | float | complex):
                yield _Part(where=where, got=[got], want=[want], kind="plain")
        case _:
            return


def _are_numbers(items: Sequence[Any]) -> bool:
    return len(items) > 0 and all(type(one) in (int, float, complex, bool) for one in items)


def _count(one: _Part) -> int:
    if one.kind == "plain":
        return len(one.want)
    return math.prod(int(n) for n in one.want.shape)


def _compared(one: _Part, tolerance: Tolerance, size: Size | None) -> _Compared:
    """`size`: how large the numbers are of parts that are too small to tell."""
    return _of_plain(one, tolerance, size) if one.kind == "plain" else _of_arrays(one, tolerance, size)


def _of_plain(one: _Part, tolerance: Tolerance, size: Size | None) -> _Compared:
    has_point = _has_point(one.want)
    with_point = [number for number in one.want if type(number) is not int]
    size = size_of("plain", with_point) or size if has_point else None
    rtol, atol = tolerance.of("float32" if has_point else "int", size=size)
    got, want = list(one.got[:PLAIN_CAP]), list(one.want[:PLAIN_CAP])
    far = [not _near(a, b, rtol, atol) for a, b in zip(got, want, strict=True)]
    wrong = sum(far)
    at = far.index(True) if wrong else 0
    pattern = _pattern_of_plain(got, want, far, at, wrong) if wrong else ""
    where = one.where if len(want) == 1 and "[" in one.where else f"{one.where}[{at}]"
    return _Compared(where=where, got=got[at], want=want[at], wrong=wrong, whole=len(want), rtol=rtol, atol=atol,
                     pattern=pattern)  # fmt: skip


def _has_point(numbers: Sequence[Any]) -> bool:
    return (
        numbers.typecode in "fd"
        if isinstance(numbers, array.array)
        else any(type(one) in (float, complex) for one in numbers)
    )


def _near(a: Any, b: Any, rtol: float, atol: float) -> bool:
    if a == b or (cmath.isnan(a) and cmath.isnan(b)):
        return True
    return cmath.isfinite(a) and cmath.isfinite(b) and abs(a - b) <= atol + rtol * abs(b)


def _pattern_of_plain(got: list[Any], want: list[Any], far: list[bool], at: int, wrong: int) -> str:
    if len(got) < 3:
        return ""
    if not any(got) and any(want):
        return ALL_ZERO
    if wrong > 1 and not any(map(cmath.isnan, got)) and _sorted(got) == _sorted(want):
        return "they are the right numbers in another order"
    pairs = [(a, b) for a, b in zip(got, want, strict=True) if type(a) is type(b) is float and b]
    finite = [(a, b) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
    if len(finite) == len(got) and (pattern := _in_ratio(sorted(a / b for a, b in finite))):
        return pattern
    return LAST_BLOCK if at and wrong > 1 and wrong == len(far) - at else ""


def _in_ratio(ratios: Any) -> str:
    """What these say in common, in ascending order: how many times as large as they should be numbers are."""
    if len(ratios) < 3:
        return ""
    low, middle, high = float(ratios[0]), float(ratios[len(ratios) // 2]), float(ratios[-1])
    if max(abs(low - 1), abs(high - 1)) <= NEAR:
        most = max(abs(low - 1), abs(high - 1))
        return f"they are off by at most {100 * most:.2g} %; is a sum kept in too few digits?"
    if middle and max(abs(low / middle - 1), abs(high / middle - 1)) <= 1e-3:
        return f"each is {middle:.4g} times the right one"
    return ""


def _sorted(numbers: list[Any]) -> list[Any]:
    return sorted(numbers, key=lambda one: (one.real, one.imag))


def _of_arrays(one: _Part, tolerance: Tolerance, size_together: Size | None) -> _Compared:
    np, name = imported("numpy"), str(one.want.dtype)
    has_point = "float" in name or "complex" in name
    rtol, atol = tolerance.of(name, size=size_of(one.kind, one.want) or size_together if has_point else None)
    shape = tuple(int(n) for n in one.want.shape)
    got, want, size = one.got.reshape(-1), one.want.reshape(-1), math.prod(shape)
    wrong, at, first = 0, 0, None
    with np.errstate(all="ignore"):
        for start in range(0, size, PIECE):
            a, b = (_wide(flat[start : start + PIECE], one.kind) for flat in (got, want))
            far = a != b if b.dtype.kind not in "fc" else ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
            if not wrong and far.any():
                at = start + int(far.argmax())
            wrong += int(far.sum())
            first = (a, b, far) if start == 0 else first
        pattern = ""
        if wrong and shape and first is not None and size <= PATTERN_CAP:
            a, b, far = (flat.reshape(shape) for flat in first)
            pattern = _pattern_of_arrays(np, a, b, far, at, wrong, rtol, atol)
    index = tuple(int(n) for n in np.unravel_index(at, shape)) if shape and size else ()
    where = f"{one.where}[{', '.join(map(str, index))}]" if index else one.where
    a, b = (_wide(flat[at : at + 1], one.kind)[0].item() if size else None for flat in (got, want))
    return _Compared(where=where, got=a, want=b, wrong=wrong, whole=size, rtol=rtol, atol=atol, pattern=pattern)


def _wide(flat: Any, kind: str) -> Any:
    """These numbers as numpy has them, those with a point in double precision."""
    if kind == "torch":
        torch = imported("torch")
        if flat.is_complex():
            flat = flat.to(torch.complex128)
        elif flat.is_floating_point():
            flat = flat.to(torch.float64)
        return flat.detach().cpu().numpy()
    return flat.astype("f8") if flat.dtype.kind == "f" else flat


def _pattern_of_arrays(np: Any, got: Any, want: Any, far: Any, at: int, wrong: int, rtol: float, atol: float) -> str:
    if not got.any() and want.any():
        return ALL_ZERO
    if np.isnan(got).any() and not np.isnan(want).any():
        return f"{int(np.isnan(got).sum())} are NaN"
    square = want.ndim >= 2 and want.shape[-1] == want.shape[-2]
    if square and np.allclose(np.swapaxes(got, -1, -2), want, rtol=rtol, atol=atol):
        return "they are the numbers of the transposed answer"
    usable = np.isfinite(got) & np.isfinite(want) & (np.abs(want) > atol)
    if bool((far & ~usable).any()):  # what those that can be compared say isn't what is wrong
        usable &= False
    ratios = np.sort(np.asarray(got[usable], "f8") / np.asarray(want[usable], "f8")) if want.dtype.kind == "f" else ()
    if pattern := _in_ratio(ratios):
        return pattern
    return LAST_BLOCK if at and wrong > 1 and bool(far.reshape(-1)[at:].all()) else ""


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:60]
