"""Whether a problem's check sees what it must: the reference's own answers, spoilt in known ways, are put to it.

No submission is in it. A check that takes zeros or a constant for the answer is broken; one that takes another order, a
missing part or fewer digits may be meant so, and its author is told.
"""

from __future__ import annotations

import array
import itertools
import math
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kbslurm_eval.judge.output_checks import is_empty
from kbslurm_eval.judge.reference import Case, ProblemTrouble, Reference
from kbslurm_eval.judge.returned_answers import returned
from kbslurm_eval.shared import values
from kbslurm_eval.shared.wire import Manifest

CASES = 6
CELLS_CAP = 4_000_000
Shape = tuple[int, ...]
Spoil = Callable[[list[Any], Shape], list[Any]]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One way of spoiling answers, and in how many of the cases that it changes the check accepted them."""

    mutation: str
    severity: Literal["error", "warning", "none"]
    passed: int
    cases: int
    message: str


def findings(manifest: Manifest, reference: Reference) -> list[dict[str, Any]]:
    """How the check judges each mutation, over the test cases."""
    shapes_are_checked = manifest.config.get("outputs") == "check"
    seen: dict[str, list[bool]] = {name: [] for name in (*MUTATIONS, *((SHORTENED,) if shapes_are_checked else ()))}
    empty: list[bool] = []
    for index, params in enumerate(list(manifest.tests)[:CASES]):
        prepared = reference.prepare(Case(index=index, params=params), None, exact=True)
        reference.verify(prepared)
        empty.append(is_empty(prepared.expected))
        packed = values.pack(returned(prepared.expected))
        for name, spoil in MUTATIONS.items():
            spoilt, changed = _spoilt(values.copied(packed), spoil)
            if changed:
                seen[name].append(reference.check(prepared, spoilt)[0])
        if shapes_are_checked:
            shortened, changed = _shortened(values.copied(packed))
            if changed:
                seen[SHORTENED].append(reference.check(prepared, shortened)[0])
    found = [_finding(name, passed) for name, passed in seen.items()]
    if empty and all(empty):
        found.append(_nothing(len(empty)))
    return list(map(asdict, found))


def _nothing(cases: int) -> Finding:
    """There is a check, so it may be meant so."""
    return Finding(
        mutation=NOTHING,
        severity="warning",
        passed=cases,
        cases=cases,
        message="the reference's answer holds nothing at all in every test case, and its check can't see what was"
        " written to the input: is a `return` missing?",
    )


def _finding(name: str, found: Sequence[bool]) -> Finding:
    passed, cases = sum(found), len(found)
    severity: Literal["error", "warning", "none"] = "none"
    if passed:
        severity = "error" if name in BROKEN and passed == cases else "warning"
    where = "every test case" if passed == cases else f"{passed} of {cases} test cases"
    return Finding(
        mutation=name,
        severity=severity,
        passed=passed,
        cases=cases,
        message=f"the check takes {MEANING[name]} for the answer in {where}" if passed else "",
    )


# ----------------------------------------------------------------------------------------------------- mutations


def _zeros(cells: list[Any], shape: Shape) -> list[Any]:
    return [type(c)(0) for c in cells]


def _constant(cells: list[Any], shape: Shape) -> list[Any]:
    if not cells:
        return cells
    if isinstance(cells[0], float) and all(map(math.isfinite, cells)):
        return [math.fsum(cells) / len(cells)] * len(cells)
    return [sorted(cells, key=abs)[len(cells) // 2]] * len(cells)


def _permuted(cells: list[Any], shape: Shape) -> list[Any]:
    """Each row swapped with its neighbour."""
    width = _row(cells, shape)
    return cells[width:] + cells[:width]


def _halved(cells: list[Any], shape: Shape) -> list[Any]:
    """Every second tile, of an eighth of the whole, never written."""
    tile = max(1, len(cells) // 8)
    return [c if (n // tile) % 2 == 0 else type(c)(0) for n, c in enumerate(cells)]


def _last_row(cells: list[Any], shape: Shape) -> list[Any]:
    width = _row(cells, shape)
    return cells[:-width] + [type(c)(0) for c in cells[-width:]] if cells else cells


def _shifted(cells: list[Any], shape: Shape) -> list[Any]:
    """Each number moved to its neighbour's position."""
    return cells[:1] + cells[:-1]


def _coarse(cells: list[Any], shape: Shape) -> list[Any]:
    """Eight bits of each number kept, as in bfloat16."""
    return [_eight_bits(c) if isinstance(c, float) else c for c in cells]


def _eight_bits(number: float) -> float:
    if not math.isfinite(number) or number == 0:
        return number
    mantissa, exponent = math.frexp(number)
    return math.ldexp(round(mantissa * 256) / 256, exponent)


def _row(cells: list[Any], shape: Shape) -> int:
    return max(1, len(cells) // shape[0]) if shape and shape[0] else 1


MUTATIONS: dict[str, Spoil] = {
    "zeros": _zeros,
    "constant": _constant,
    "permuted rows": _permuted,
    "half the tiles": _halved,
    "last row missing": _last_row,
    "off by one": _shifted,
    "lower precision": _coarse,
}
NOTHING = "nothing"  # no mutation: what there is to spoil
SHORTENED = "first half alone"  # where the layout of an answer is for the check to judge
BROKEN = ("zeros", "constant")
MEANING = {
    SHORTENED: "the first half of the answer alone",
    "zeros": "zeros",
    "constant": "one number everywhere",
    "permuted rows": "rows in another order",
    "half the tiles": "half of the answer, the rest zeros,",
    "last row missing": "an answer without its last row",
    "off by one": "an answer shifted by one",
    "lower precision": "numbers of eight bits",
}


# ------------------------------------------------------------------------------------------- answers taken apart


def _spoilt(value: Any, spoil: Spoil) -> tuple[Any, bool]:
    """The value with all its blocks of numbers spoilt, and whether anything changed."""
    match value:
        case tuple() | dict():
            parts = value.items() if isinstance(value, dict) else enumerate(value)
            found = {key: _spoilt(inner, spoil) for key, inner in parts}
            changed = any(c for _, c in found.values())
            if isinstance(value, dict):
                return {k: v for k, (v, _) in found.items()}, changed
            return tuple(v for v, _ in found.values()), changed
        case list() if value and not _numbers(value) and _table(value) is None:
            inner = [_spoilt(v, spoil) for v in value]
            return [v for v, _ in inner], any(c for _, c in inner)
        case _:
            return _block(value, spoil)


def _shortened(value: Any) -> tuple[Any, bool]:
    """The value with the first half of each block alone, and whether anything changed."""
    match value:
        case tuple() | dict():
            parts = value.items() if isinstance(value, dict) else enumerate(value)
            found = {key: _shortened(inner) for key, inner in parts}
            changed = any(c for _, c in found.values())
            kept = {k: v for k, (v, _) in found.items()}
            return (kept if isinstance(value, dict) else tuple(kept.values())), changed
        case list() | array.array() | bytes() | bytearray():
            return value[: max(1, len(value) // 2)], len(value) > 1
        case _ if getattr(value, "shape", ()):
            return value[: max(1, len(value) // 2)], len(value) > 1
        case _:
            return value, False


def _numbers(value: Sequence[Any]) -> bool:
    return all(isinstance(v, int | float) for v in value)


def _table(value: list[Any]) -> int | None:
    """The width of a list of rows of the same length, or None."""
    if not all(isinstance(row, list | array.array) and len(row) and _numbers(row) for row in value):
        return None
    kinds = {(len(row), getattr(row, "typecode", "")) for row in value}
    return kinds.pop()[0] if len(kinds) == 1 else None


def _block(value: Any, spoil: Spoil) -> tuple[Any, bool]:
    cells, shape, rebuilt = _cells(value)
    if not cells or len(cells) > CELLS_CAP:
        return value, False
    spoilt = spoil(list(cells), shape)
    same = all(a == b or (a != a and b != b) for a, b in zip(cells, spoilt, strict=True))
    return (value, False) if same else (rebuilt(spoilt), True)


def _cells(value: Any) -> tuple[list[Any], Shape, Callable[[list[Any]], Any]]:
    match value:
        case bool() | int() | float():
            return [value], (), lambda cells: cells[0]
        case array.array():
            return value.tolist(), (len(value),), lambda cells: array.array(value.typecode, _fitting(value, cells))
        case list() if value and (width := _table(value)) is not None:
            flat = list(itertools.chain.from_iterable(value))
            rows = len(value)
            return (
                flat,
                (rows, width),
                lambda cells: [_like(value[r], cells[r * width : (r + 1) * width]) for r in range(rows)],
            )
        case list():
            return list(value), (len(value),), lambda cells: cells
        case bytes() | bytearray():
            return list(value), (len(value),), lambda cells: type(value)(int(c) for c in cells)
        case _:
            pass
    root = type(value).__module__.partition(".")[0]
    if root == "numpy" and getattr(value, "dtype", None) is not None and value.dtype.kind in "fiub":
        numpy = sys.modules["numpy"]
        shape = tuple(value.shape)
        return value.reshape(-1).tolist(), shape, lambda cells: numpy.array(cells, dtype=value.dtype).reshape(shape)
    if root == "torch" and hasattr(value, "element_size") and not value.is_complex():
        torch = sys.modules["torch"]
        wide = value.detach().cpu()
        wide = wide.double() if value.is_floating_point() else wide
        return (
            wide.reshape(-1).tolist(),
            tuple(value.shape),
            lambda cells: torch.tensor(cells, dtype=wide.dtype).to(value.dtype).reshape(value.shape).to(value.device),
        )
    return [], (), lambda cells: value


def _like(row: Any, cells: list[Any]) -> Any:
    return array.array(row.typecode, _fitting(row, cells)) if isinstance(row, array.array) else cells


def _fitting(block: Any, cells: list[Any]) -> list[Any]:
    if block.typecode != "f":
        return cells
    return [struct.unpack("f", struct.pack("f", c))[0] if math.isfinite(c) else c for c in cells]


def of_manifest(manifest: Manifest, compiled: Any) -> dict[str, Any]:
    """What `--mutate` prints: findings, or what is wrong with the problem itself."""
    try:
        return {"findings": findings(manifest, Reference(manifest, compiled)), "trouble": ""}
    except ProblemTrouble as trouble:
        return {"findings": [], "trouble": str(trouble)}
