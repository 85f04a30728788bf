"""Layouts of outputs: declared by the judge, filled by a runner, read back by the judge.

What a runner writes never describes itself: the judge derives a `Layout` from its own reference's output and reads
exactly those bytes (`Layout.read`), so nothing that a submission makes is parsed, unpickled or even sized by it. Where
a problem's check alone decides what an answer is, `claimed_layout` says how another layout comes to be declared.
"""

from __future__ import annotations

import array
import ctypes
import functools
import json
import math
import operator
import struct
import sys
from collections.abc import Iterable, Iterator

from kbslurm_eval.shared import values
from kbslurm_eval.shared.values import (
    DEPTH_CAP,
    Unsendable,
    array_kind,
    as_block,
    imported,
    sendable_key,
    tensor_from,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Elsewhere(Protocol):
        """Where the judge has what an output's layout doesn't have on the host."""

        def read(self, node: Any) -> Any:
            """The array of this node; Misfit for what no array of its type contains."""
            ...

        def raised(self, node: Any, found: memoryview) -> Any:
            """An array on the device with these bytes."""
            ...


MIXED_LEAST = 16  # a list of so many floats is one, whole numbers among them or not


class Misfit(Exception):
    """An output that isn't of the declared layout; `shape` says that only its size is wrong."""

    def __init__(self, said: str, *, shape: bool = False) -> None:
        super().__init__(said)
        self.shape = shape


class Layout:
    """Where each part of an output stands and of what type it is: made from the reference's output, by the judge
    only."""

    def __init__(self, *, tree: Any, size: int) -> None:
        self.tree, self.size = tree, size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and (self.tree, self.size) == (other.tree, other.size)

    __hash__ = None  # type: ignore[assignment]

    @staticmethod
    def of(output: Any) -> Layout:
        """The layout that an output must have to be compared with this one."""
        end = 0

        def room(size: int) -> int:
            nonlocal end
            at = end
            end = (at + size + 7) // 8 * 8
            return at

        tree = _laid(output, room, "output", 0)
        return Layout(tree=tree, size=end)

    @property
    def least_bytes(self) -> int:
        """What an output has at least: text has more room here than it needs."""
        return self.size - _room_of_texts(self.tree)

    @functools.cached_property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """Where each array and each single value of an output is, and its size."""
        return tuple(_parts(self.tree))

    def text(self) -> str:
        """For the runner."""
        return self._text

    @functools.cached_property
    def _text(self) -> str:
        return json.dumps({"tree": self.tree, "size": self.size}, separators=(",", ":"))

    def places(self, buffer: memoryview) -> Any:
        """The runner's part: what `out` is for a submission that asks for it: arrays where the answer is read, None
        for whatever else it has to return."""
        return _places(self.tree, buffer)

    def write(self, output: Any, buffer: memoryview) -> None:
        """The runner's part: the output's bytes into the buffer, or Misfit. What is there already isn't copied."""
        if self.tree[0] in ("l", "t", "d"):  # one array alone can't be where another belongs
            output = _apart(self.tree, output, buffer)
        _write(self.tree, output, buffer, "output")

    def read(self, found: bytes | bytearray | memoryview, away: Elsewhere | None = None) -> Any:
        """The judge's part: a plain value out of exactly these bytes, or Misfit. It never looks at a length it
        didn't set. Arrays are views of memory that can be written to, which the caller gives away. `away`: the judge's
        own copy of what was on a device."""
        if len(found) != self.size:
            raise Misfit("the output buffer was cut short", shape=True)
        try:
            return _read(self.tree, memoryview(bytearray(found) if type(found) is bytes else found), away)
        except (ValueError, OverflowError) as error:  # bytes that no value of that type has
            raise Misfit(f"the bytes aren't a valid value: {error}") from None


def _room_of_texts(node: Any) -> int:
    kind = node[0]
    if kind in ("u", "b", "B"):
        return (8 + int(node[2]) + 7) // 8 * 8
    if kind in ("l", "t"):
        return sum(map(_room_of_texts, node[1]))
    return sum(_room_of_texts(inner) for _, inner in node[1]) if kind == "d" else 0


def _parts(node: Any) -> Iterator[tuple[int, int]]:
    match node:
        case ["l" | "t", inner]:
            for item in inner:
                yield from _parts(item)
        case ["d", pairs]:
            for _, item in pairs:
                yield from _parts(item)
        case ["n" | "T" | "A", _, _, int(at), int(size), *_] if size:
            yield at, size
        case ["q" | "f" | "m", at, count, *_] if count:
            yield at, 8 * count
        case ["a", code, at, count] if count:
            yield at, count * array.array(code).itemsize
        case ["u" | "b" | "B", at, cap]:
            yield at, 8 + cap
        case ["i", at, width]:
            yield at, width
        case ["j", at, width]:
            yield at, width + 1
        case ["g" | "?" | "c" as code, at]:
            yield at, {"g": 8, "?": 1, "c": 16}[code]
        case _:
            pass


def layout_from(text: str) -> Layout:
    """The runner's reading of `Layout.text`."""
    raw = json.loads(text)
    return Layout(tree=raw["tree"], size=raw["size"])


def _laid(value: Any, room: Any, where: str, depth: int) -> Any:
    if depth > DEPTH_CAP:
        raise Unsendable(f"{where} is nested more than {DEPTH_CAP} deep")
    kind = type(value)
    if value is None:
        return ["0"]
    if kind is bool:
        return ["?", room(1)]
    if kind is int:
        return ["i", room(_width(value)), _width(value)]
    if kind is float:
        return ["g", room(8)]
    if kind is complex:
        return ["c", room(16)]
    if kind in (str, bytes, bytearray):
        cap = 2 * len(value.encode("utf-8", "surrogatepass") if kind is str else value) + 64
        return [{str: "u", bytes: "b", bytearray: "B"}[kind], room(8 + cap), cap]
    if kind is list:
        if (packed := as_block(value)) is not None:
            return [packed[0], room(8 * len(value)), len(value)]
        if (whole := _whole_among_floats(value)) is not None:
            return ["m", room(8 * len(value)), len(value), whole]
        return ["l", _inside(value, [f"{where}[{n}]" for n in range(len(value))], room, depth)]
    if isinstance(value, tuple):  # named ones, too
        return ["t", _inside(value, [f"{where}[{n}]" for n in range(len(value))], room, depth)]
    if isinstance(value, dict):  # ordered ones and others, too; what is read back is a plain one
        keys = [sendable_key(k, where) for k in value]
        inside = _inside(value.values(), [f"{where}[{k!r}]" for k in value], room, depth)
        return ["d", [[key, inner] for key, inner in zip(keys, inside, strict=True)]]
    if kind is array.array and value.typecode not in "uw":
        return ["a", value.typecode, room(len(value) * value.itemsize), len(value)]
    match array_kind(value):
        case "numpy" if not value.dtype.hasobject and not value.dtype.names:
            np = imported("numpy")

            if not isinstance(value, np.ndarray):
                return ["s", value.dtype.str, room(value.dtype.itemsize)]
            return ["n", value.dtype.str, list(value.shape), room(value.nbytes), value.nbytes]
        case "torch":
            size = value.numel() * value.element_size()
            return ["T", str(value.dtype)[6:], list(value.shape), room(size), size, value.device.type]
        case None if (told := values.interface_of(value)) is not None:
            size = math.prod(told["shape"]) * int(told["typestr"][2:])
            return ["A", told["typestr"], list(told["shape"]), room(size), size]
        case _:
            raise Unsendable(f"{where} is a {kind.__name__}, which can't come back from a runner")


def _inside(items: Iterable[Any], where: list[str], room: Any, depth: int) -> list[Any]:
    """Of a whole number with floats beside it another answer may be a float: Python's sum of none is one."""
    has_floats = any(map(_is_float, items))
    return [
        ["j", room(_width(item) + 1), _width(item)]
        if has_floats and type(item) is int
        else _laid(item, room, place, depth + 1)
        for item, place in zip(items, where, strict=True)
    ]


def _width(whole: int) -> int:
    """Bytes for a whole number like this one, and for larger ones."""
    return max(16, whole.bit_length() // 8 + 9)


def _whole_among_floats(numbers: list[Any]) -> list[int] | None:
    """Where the whole numbers are in a long list of floats, as which they can be written; None for other lists."""
    if len(numbers) < MIXED_LEAST or set(map(type, numbers)) != {int, float}:
        return None
    places = [n for n, number in enumerate(numbers) if type(number) is int]
    return places if all(abs(numbers[n]) <= 1 << sys.float_info.mant_dig for n in places) else None


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or (array_kind(value) == "numpy" and value.dtype.kind == "f" and not value.shape)


def _places(node: Any, buffer: memoryview) -> Any:
    match node:
        case ["l", inner]:
            return [_places(item, buffer) for item in inner]
        case ["t", inner]:
            return tuple(_places(item, buffer) for item in inner)
        case ["d", pairs]:
            return {tuple(k[1]) if isinstance(k, list) else k: _places(item, buffer) for k, item in pairs}
        case ["n", dtype, shape, at, _]:
            return imported("numpy").ndarray(tuple(shape), dtype, buffer, at)
        case ["T", name, shape, at, _, "cpu"]:
            return tensor_from(name, shape, at, [], "cpu", buffer)
        case ["T", name, shape, _, _, device]:
            return values.empty_tensor(name, shape, device)
        case ["G", inner] if values.device_side is not None:
            return values.device_side.place(inner)
        case _:
            return None


def _apart(node: Any, value: Any, out: memoryview) -> Any:
    """The same, with copies of arrays that are in the output but not in their own place: the others' are written
    first."""
    kind = type(value)
    match node:
        case ["l" | "t", inner] if kind in (list, tuple) and len(inner) == len(value):
            return kind(_apart(item, part, out) for item, part in zip(inner, value, strict=True))
        case ["d", pairs] if kind is dict:
            inside = {tuple(k[1]) if isinstance(k, list) else k: item for k, item in pairs}
            return {key: _apart(inside.get(key, ["0"]), part, out) for key, part in value.items()}
        case ["n" | "T", _, _, at, size, *_] if size and (kind_of := array_kind(value)) in ("numpy", "torch"):
            begin = ctypes.addressof(ctypes.c_char.from_buffer(out))
            place = _address(value, kind_of) - begin
            return value if place == at or not 0 <= place < len(out) else _copy(value, kind_of)
        case ["G", inner] if values.device_side is not None:
            return values.device_side.apart(inner, value)
        case _:
            return value


def _address(value: Any, kind: str) -> int:
    if kind == "torch":
        return int(value.data_ptr()) if value.device.type == "cpu" else 0
    return int(value.__array_interface__["data"][0]) if isinstance(value, imported("numpy").ndarray) else 0


def _copy(value: Any, kind: str) -> Any:
    return value.clone() if kind == "torch" else value.copy()


def fit(condition: bool, said: str, *, shape: bool = False) -> None:
    if not condition:
        raise Misfit(said, shape=shape)


def _write(node: Any, value: Any, out: memoryview, where: str) -> None:
    kind = node[0]
    if kind in ("l", "t"):
        want = list if kind == "l" else tuple
        fit(isinstance(value, want), f"{where} is a {type(value).__name__}; a {want.__name__} was expected")
        fit(len(value) == len(node[1]), f"{where} has {len(value)} items; {len(node[1])} were expected", shape=True)
        for n, inner in enumerate(node[1]):
            _write(inner, value[n], out, f"{where}[{n}]")
    elif kind == "d":
        fit(isinstance(value, dict), f"{where} is a {type(value).__name__}; a dict was expected")
        keys = [tuple(k[1]) if isinstance(k, list) else k for k, _ in node[1]]
        fit(
            len(value) == len(keys) and all(k in value for k in keys),
            f"{where} has other keys than expected",
            shape=True,
        )
        for key, (_, inner) in zip(keys, node[1], strict=True):
            _write(inner, value[key], out, f"{where}[{key!r}]")
    elif kind in ("n", "T"):
        try:
            (_write_numpy if kind == "n" else write_torch)(node, value, out, where)
        except OverflowError as error:
            raise Misfit(f"{where} is a {type(value).__name__} that doesn't fit: {error}") from None
    elif kind in ("G", "H") and values.device_side is not None:
        values.device_side.take(node[1], value, None if kind == "G" else out, where)
    else:
        _write_leaf(node, value, out, where)


def _write_leaf(node: Any, value: Any, out: memoryview, where: str) -> None:
    kind = node[0]
    try:
        match kind:
            case "q" | "f" | "m":
                fit(isinstance(value, list), f"{where} is a {type(value).__name__}; a list was expected")
                fit(len(value) == node[2], f"{where} has {len(value)} items; {node[2]} were expected", shape=True)
                numbers = _whole_numbers(value) if kind == "q" else array.array("d", value)
                out[node[1] : node[1] + 8 * node[2]] = memoryview(numbers).cast("B")
            case "x":
                fit(False, f"{where} is a {type(value).__name__}, which isn't a value that can be sent")
            case "0":
                fit(value is None, f"{where} is a {type(value).__name__}; None was expected")
            case "?":
                fit(_is_bool(value), f"{where} isn't a bool")
                out[node[1]] = 1 if value else 0
            case "i":
                out[node[1] : node[1] + node[2]] = _whole(value).to_bytes(node[2], "little", signed=True)
            case "j":
                _write_whole_or_float(node, value, out)
            case "g":
                struct.pack_into("<d", out, node[1], value)
            case "c":
                struct.pack_into("<dd", out, node[1], complex(value).real, complex(value).imag)
            case "s":
                np = imported("numpy")

                dtype = np.dtype(node[1])
                np.ndarray((), dtype, out, node[2])[()] = _number_for(dtype.kind, value, where)
            case "a":
                is_one = isinstance(value, array.array) and value.typecode == node[1]
                fit(is_one, f"{where} isn't an array of {node[1]!r}")
                fit(len(value) == node[3], f"{where} has {len(value)} items; {node[3]} were expected", shape=True)
                out[node[2] : node[2] + len(value) * value.itemsize] = memoryview(value).cast("B")
            case _:
                want = {"u": str, "b": bytes, "B": bytearray}[kind]
                fit(isinstance(value, want), f"{where} is a {type(value).__name__}; {want.__name__} was expected")
                blob = value.encode("utf-8", "surrogatepass") if kind == "u" else bytes(value)
                fit(len(blob) <= node[2], f"{where} is too long", shape=True)
                struct.pack_into("<Q", out, node[1], len(blob))
                out[node[1] + 8 : node[1] + 8 + len(blob)] = blob
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise Misfit(f"{where} is a {type(value).__name__} that doesn't fit: {error}") from None


def _number_for(kind: str, value: Any, where: str) -> Any:
    """What numpy may make one of its single numbers of: it would cut a float to a whole number, and read a text."""
    match kind:
        case "i" | "u":
            return _whole(value)
        case "b":
            fit(_is_bool(value), f"{where} isn't a bool")
        case "f" | "c":
            fit(not isinstance(value, str | bytes), f"{where} is a {type(value).__name__}; a number was expected")
            fit(kind == "c" or not isinstance(value, complex), f"{where} is a complex number; a real one was expected")
        case _:
            pass
    return value


def _is_bool(value: Any) -> bool:
    """Whether it is one of Python's or numpy's, or an array of one without dimensions."""
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return True
    is_array = array_kind(value) in ("numpy", "torch") and not tuple(value.shape)
    return is_array and str(value.dtype) in ("bool", "torch.bool")


def _whole(value: Any) -> int:
    """The whole number that this is, which may be written as a float."""
    try:
        return operator.index(value)
    except TypeError:
        if not callable(whole := getattr(value, "is_integer", None)) or not whole():
            raise
        return int(value)


def _whole_numbers(items: list[Any]) -> array.array[int]:
    try:
        return array.array("q", items)
    except TypeError:
        return array.array("q", list(map(_whole, items)))


def _write_whole_or_float(node: Any, value: Any, out: memoryview) -> None:
    """A whole number and behind it its sign, or a float and behind it a 1."""
    _, at, width = node
    try:
        whole = _whole(value)
    except TypeError:
        struct.pack_into("<d", out, at, value)
        out[at + width] = 1
    else:
        out[at : at + width] = whole.to_bytes(width, "little", signed=True)
        out[at + width] = 0xFF if whole < 0 else 0


def _write_numpy(node: Any, value: Any, out: memoryview, where: str) -> None:
    np = imported("numpy")

    dtype, shape = np.dtype(node[1]), tuple(node[2])
    if not shape and isinstance(value, np.generic):
        value = np.asarray(value)
    elif not shape and isinstance(value, float | int | complex) and np.result_type(dtype, value) == dtype:
        value = np.asarray(value, dtype)
    fit(isinstance(value, np.ndarray), f"{where} is a {type(value).__name__}; a numpy array was expected")
    fit(value.dtype == dtype, f"{where} has dtype {value.dtype}; {dtype} was expected")
    fit(value.shape == shape, f"{where} has shape {value.shape}; {shape} was expected", shape=True)
    if node[4]:
        np.copyto(np.ndarray(shape, dtype, out, node[3]), value)  # of an array to itself nothing


def write_torch(node: Any, value: Any, out: memoryview, where: str) -> None:
    """A tensor's bytes into its place, or Misfit."""
    torch = imported("torch")

    value = tensor_of_number(node, value)
    fit(isinstance(value, torch.Tensor), f"{where} is a {type(value).__name__}; a tensor was expected")
    dtype, shape = getattr(torch, node[1]), tuple(node[2])
    fit(value.dtype == dtype, f"{where} has dtype {value.dtype}; {dtype} was expected")
    fit(tuple(value.shape) == shape, f"{where} has shape {tuple(value.shape)}; {shape} was expected", shape=True)
    fit(value.device.type == node[5], f"{where} is on {value.device.type}; {node[5]} was expected")
    if node[4]:
        there = torch.frombuffer(out, dtype=dtype, count=value.numel(), offset=node[3]).reshape(shape)
        if value.device.type != "cpu" or value.data_ptr() != there.data_ptr() or not value.is_contiguous():
            values.fill_tensor(there, value)


def tensor_of_number(node: Any, value: Any) -> Any:
    """A number of Python's as the tensor without dimensions that this node asks for; anything else as it is."""
    if node[2] or not isinstance(value, float | int | complex):
        return value
    torch = imported("torch")
    dtype = getattr(torch, node[1])
    if torch.result_type(torch.empty((), dtype=dtype), value) != dtype:
        return value
    try:
        return torch.tensor(value, dtype=dtype, device=node[5])
    except RuntimeError:  # it is too large for that type
        return value


def read_one(node: Any, found: memoryview) -> Any:
    """One array of a layout, out of memory in which its place is as the node says."""
    return _read(node, found, None)


def are_truths(found: bool) -> None:
    """Misfit where bytes of a boolean array are neither true nor false."""
    fit(found, "a bool is neither true nor false")


def _read(node: Any, found: memoryview, away: Elsewhere | None) -> Any:
    kind = node[0]
    match kind:
        case "0":
            return None
        case "l":
            return [_read(n, found, away) for n in node[1]]
        case "t":
            return tuple(_read(n, found, away) for n in node[1])
        case "d":
            return {tuple(k[1]) if isinstance(k, list) else k: _read(n, found, away) for k, n in node[1]}
        case "G" if away is not None:
            return away.read(node[1])
        case "A" if away is not None:
            return away.raised(node, found[node[3] : node[3] + node[4]])
        case "?":
            fit(found[node[1]] in (0, 1), "a bool is neither true nor false")
            return bool(found[node[1]])
        case "i":
            return int.from_bytes(found[node[1] : node[1] + node[2]], "little", signed=True)
        case "j":
            at, width = node[1:]
            if found[at + width] == 1:
                return struct.unpack_from("<d", found, at)[0]
            return int.from_bytes(found[at : at + width], "little", signed=True)
        case "g":
            return struct.unpack_from("<d", found, node[1])[0]
        case "c":
            return complex(*struct.unpack_from("<dd", found, node[1]))
        case "q" | "f":
            numbers = array.array("q" if kind == "q" else "d")
            numbers.frombytes(found[node[1] : node[1] + 8 * node[2]])
            return numbers.tolist()
        case "m":
            mixed: list[Any] = memoryview(found)[node[1] : node[1] + 8 * node[2]].cast("d").tolist()
            for n in node[3]:
                mixed[n] = int(mixed[n]) if mixed[n].is_integer() else mixed[n]
            return mixed
        case "a":
            made = array.array(node[1])
            made.frombytes(found[node[2] : node[2] + node[3] * made.itemsize])
            return made
        case "u" | "b" | "B":
            return _read_text(kind, node, found)
        case "s":
            _truths(node[1] == "|b1", found[node[2] : node[2] + 1])
            return _letters(imported("numpy").ndarray((), node[1], found, node[2]))[()]
        case "n":
            _truths(node[1] == "|b1", found[node[3] : node[3] + node[4]])
            return _letters(imported("numpy").ndarray(tuple(node[2]), node[1], found, node[3]))
        case _:
            _truths(node[1] == "bool", found[node[3] : node[3] + node[4]])
            made_tensor = tensor_from(node[1], node[2], node[3], [], "cpu", found)
            return made_tensor if node[5] == "cpu" else made_tensor.to(node[5])


def _truths(are: bool, blob: bytearray | memoryview) -> None:
    """A library that is told that a byte is a truth value may compute with it; whoever wrote it chose which."""
    fit(not are or not bytes(blob).translate(None, b"\0\1"), "a bool is neither true nor false")


def _letters(found: Any) -> Any:
    """An array that, if it is of text, is of letters: numpy takes any number for one, and Python fails on it later."""
    if found.dtype.kind == "U" and found.nbytes:
        numbers = found.reshape(-1).view(found.dtype.byteorder.replace("|", "=") + "u4")
        fit(bool(numbers.max() <= sys.maxunicode), "a text has letters that don't exist")
    return found


def _read_text(kind: str, node: Any, found: memoryview) -> Any:
    length = struct.unpack_from("<Q", found, node[1])[0]
    fit(length <= node[2], "a string is longer than its buffer", shape=True)
    blob = bytes(found[node[1] + 8 : node[1] + 8 + length])
    if kind == "b":
        return blob
    if kind == "B":
        return bytearray(blob)
    try:
        return blob.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise Misfit("a string isn't UTF-8") from None
