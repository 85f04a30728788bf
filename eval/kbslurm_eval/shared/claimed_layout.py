"""Outputs of another type or shape than the reference's, where a problem leaves it to its check what an answer is.

The runner may then say of an output that doesn't fit the declared layout what it is instead: the tree of a layout, as
JSON. The judge takes types, shapes and lengths from it within bounds of its own, works out every place itself, makes
each array once to see that there is such a thing here, and declares the result for the next call. What is read is still
bytes of a layout that the judge declared; it holds plain values only, and names no class.
"""

from __future__ import annotations

import json
import re

from kbslurm_eval.shared.layouts import Layout
from kbslurm_eval.shared.runner_link import TEXT_CAP
from kbslurm_eval.shared.values import DEPTH_CAP, Unsendable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ANY = Layout(tree=["x"], size=0)  # where there is no reference whose answer could have a layout
FACTOR, LEAST_CAP = 8, 1 << 16  # how much larger than the reference's answer an output may be
IN_PYTHON = 24  # bytes that a number takes at least where each is an object of its own
TORCH_SIZES = {
    "bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4, "float32": 4, "int64": 8,
    "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
_MARK = "\0"
_NUMPY = re.compile(r"[<>|=](?:b1|[iu][1248]|f[248]|c8|c16)\Z")
_ARRAYS = {"b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "l": 8, "L": 8, "q": 8, "Q": 8, "f": 4, "d": 8}


class _Unfit(ValueError):
    """Not a claim that can be granted."""


def with_claim(said: str, output: Any) -> str:
    """The runner's part: why an output doesn't fit, and behind it what it is."""
    try:
        tree = json.dumps(Layout.of(output).tree, separators=(",", ":"))
    except (Unsendable, TypeError, ValueError, AttributeError, RecursionError):
        return said
    whole = f"{said[:1000]}{_MARK}{tree}"
    return whole if len(whole.encode("utf-8", "replace")) <= TEXT_CAP else said


def without_claim(text: str) -> str:
    """The part for people."""
    return text.partition(_MARK)[0]


def granted(text: str, like: Layout, *, cap: int = 0, device: str = "cpu") -> Layout | None:
    """The judge's part: the layout of an output as this text claims it, or None. Where there is no reference's answer
    to say it: `cap`, the most bytes that it may have, and `device`, where else it may have tensors."""
    claim = text.partition(_MARK)[2]
    if not claim:
        return None
    try:
        laid = _Laid(cap or FACTOR * like.size + LEAST_CAP, _devices(like.tree) | {device})
        return Layout(tree=laid.node(json.loads(claim), 0), size=laid.end)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None


def in_that_form(told: Layout, like: Layout, other: Layout, *, cap: int = 0) -> Layout | None:
    """What a submission answers instead of `other`, if it does as it did when it was told so instead of `like`: arrays
    of the same shapes and of its own types. None where that doesn't follow."""
    try:
        laid = _Laid(cap or FACTOR * other.size + LEAST_CAP, _devices(other.tree))
        return Layout(tree=laid.node(_formed(told.tree, like.tree, other.tree), 0), size=laid.end)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None


def _formed(told: Any, like: Any, other: Any) -> Any:
    match told, like, other:
        case ["l" | "t" as kind, list() as inner], [was, list() as theirs], [now, list() as others] if (
            was == now and now in ("l", "t") and len(inner) == len(theirs) == len(others)
        ):
            return [kind, [_formed(*each) for each in zip(inner, theirs, others, strict=True)]]
        case ["d", list() as pairs], ["d", list() as theirs], ["d", list() as others]:
            before, later = ({json.dumps(key): one for key, one in each} for each in (theirs, others))
            if len(pairs) != len(before) or before.keys() != later.keys():
                raise _Unfit
            known = [(key, one, json.dumps(key)) for key, one in pairs]
            return ["d", [[key, _formed(one, before[name], later[name])] for key, one, name in known]]
        case ["n", dtype, shape, *_], ["n", _, same, *_], ["n", _, now, *_] if shape == same:
            return ["n", dtype, now, 0, 0]
        case ["T", name, shape, _, _, device], ["T", _, same, *_], ["T", _, now, *_] if shape == same:
            return ["T", name, now, 0, 0, device]
        case ["a", code, _, count], [_, _, _, same], [_, _, _, now] if count == same and like[0] == other[0] == "a":
            return ["a", code, 0, now]
        case ["0" | "?" | "g" | "c" as kind, *_], [theirs, *_], [others, *_] if kind == theirs == others:
            return told
        case ["i" | "u" | "b" | "B" as kind, _, room], [theirs, *_], [others, _, now] if kind == theirs == others:
            return [kind, 0, max(room, now)]
        case _:
            return _as_long_as(told, like, other)


def _as_long_as(told: Any, like: Any, other: Any) -> Any:
    """A row of numbers in the place of another kind of row, which now has another length."""
    (many, axis), kind, now = _row(told), told[0], _row(other)[0]
    if many != _row(like)[0]:
        raise _Unfit
    if kind in ("l", "t"):
        return [kind, told[1][:1] * now]
    if kind in ("n", "T"):
        shape = [now if n == axis else 1 for n in range(len(told[2]))]
        return [kind, told[1], shape, 0, 0, *told[5:]]
    return [*told[:-1], now]


def _row(node: Any) -> tuple[int, int]:
    """How many numbers it has, and along which axis, if they are all of one type and in one row."""
    match node:
        case ["n" | "T", _, list() as shape, *_]:
            (axis,) = (axis for axis, many in enumerate(shape) if many != 1 or len(shape) == 1)
            return _count(shape[axis]), axis
        case ["a", _, _, count] | ["q" | "f", _, count]:
            return _count(count), 0
        case ["l" | "t", [["?" | "g" | "c" | "i" as leaf, *_] as first, *_] as inner]:
            if any((one[0], one[2:]) != (leaf, first[2:]) for one in inner):
                raise _Unfit
            return len(inner), 0
        case _:
            raise _Unfit


def _devices(tree: Any) -> frozenset[str]:
    """Where the reference's answer has tensors; the CPU always counts."""
    found = {"cpu"}
    if isinstance(tree, list):
        if len(tree) == 6 and tree[0] == "T":
            found.add(str(tree[5]))
        for inner in tree:
            found |= _devices(inner)
    return frozenset(found)


class _Laid:
    """A claimed tree, laid out anew."""

    def __init__(self, cap: int, devices: frozenset[str]) -> None:
        self._cap, self._devices, self.end, self._beside = cap, devices, 0, 0

    def node(self, told: Any, depth: int) -> Any:
        """The same node with places of ours."""
        if depth > DEPTH_CAP or not isinstance(told, list):
            raise _Unfit
        match told:
            case ["0"]:
                return ["0"]
            case ["?", _]:
                return ["?", self._room(1)]
            case ["g", _]:
                return ["g", self._room(8)]
            case ["c", _]:
                return ["c", self._room(16)]
            case ["i", _, width]:
                return ["i", self._room(_count(width)), width]
            case ["j", _, width]:
                return ["j", self._room(max(8, _count(width) + 1)), width]
            case ["u" | "b" | "B" as kind, _, cap]:
                return [kind, self._room(8 + _count(cap)), cap]
            case ["q" | "f" as kind, _, count]:
                self._beside += (IN_PYTHON - 8) * _count(count)
                return [kind, self._room(8 * count), count]
            case ["m", _, count, list() as whole] if len(whole) <= _count(count):
                if not all(type(n) is int and 0 <= n < count for n in whole):
                    raise _Unfit
                self._beside += (IN_PYTHON - 8) * count
                return ["m", self._room(8 * count), count, whole]
            case ["l" | "t" as kind, list() as inner]:
                return [kind, [self.node(one, depth + 1) for one in inner]]
            case ["d", list() as pairs]:
                return ["d", [[_key(key), self.node(one, depth + 1)] for key, one in pairs]]
            case ["a", str() as code, _, count]:
                return ["a", code, self._room(_ARRAYS[code] * _count(count)), count]
            case ["s", str() as dtype, _]:
                size = _numpy_size(dtype)
                return _made(["s", dtype, self._room(size)], ["s", dtype, 0], size)
            case ["n", str() as dtype, list() as shape, _, _]:
                size = _numpy_size(dtype) * _product(shape)
                return _made(["n", dtype, shape, self._room(size), size], ["n", dtype, shape, 0, size], size)
            case ["T", str() as name, list() as shape, _, _, str() as device] if device in self._devices:
                size = TORCH_SIZES[name] * _product(shape)
                told = ["T", name, shape, self._room(size), size, device]
                return _made(told, ["T", name, shape, 0, size, "cpu"], size)
            case _:
                raise _Unfit

    def _room(self, size: int) -> int:
        at = self.end
        self.end = (at + size + 7) // 8 * 8
        if self.end + self._beside > self._cap:
            raise _Unfit
        return at


def _made(node: Any, alone: Any, size: int) -> Any:
    """This node, if an array like it can be made: its library may be missing, or have no such type or shape, and that
    would fail the judge, whose runs are tried again."""
    try:
        Layout(tree=alone, size=size).read(bytearray(size))
    except Exception:  # noqa: BLE001 - of whatever library
        raise _Unfit from None
    return node


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 48:
        raise _Unfit
    return value


def _product(shape: list[Any]) -> int:
    if len(shape) > 32:
        raise _Unfit
    size = 1
    for one in shape:
        size = _count(size * _count(one))
    return size


def _numpy_size(dtype: str) -> int:
    if not _NUMPY.match(dtype):
        raise _Unfit
    return int(dtype[2:])


def _key(key: Any) -> Any:
    if key is None or type(key) in (str, int, float, bool):
        return key
    if isinstance(key, list) and len(key) == 2 and key[0] == "t" and all(type(k) in (str, int) for k in key[1]):
        return key
    raise _Unfit
