"""Values across the link: inputs go out in a typed form of ours, outputs come back as bytes of a layout that the
judge declares.

The two directions differ on purpose. What the judge packs (`pack`/`unpack`) may describe itself: the runner trusts the
judge. What the runner writes never describes itself: the judge derives a `Layout` from its own reference's output and
reads exactly those bytes (`Layout.read`), so nothing that a submission makes is parsed, unpickled or even sized by it.
numpy and torch are used where a problem has imported them, and never imported for any other reason.
"""

from __future__ import annotations

import array
import cmath
import importlib
import json
import math
import operator
import struct
import sys
from dataclasses import dataclass
from typing import Any, Protocol

ALIGN = 64
INT64 = range(-(1 << 63), 1 << 63)
DEPTH_CAP = 60


class Unsendable(TypeError):
    """A value of a kind that has no place in the link: the problem's author has to change it."""


class DeviceSide(Protocol):
    """Who has the arrays that lie on a device, in a runner."""

    def made(self, node: Any, blocks: memoryview | None) -> Any:
        """The value of a node there: over the judge's memory, or of these bytes."""
        ...

    def take(self, node: Any, value: Any, out: memoryview | None, where: str) -> None:
        """The value's bytes into the place of a node there, or into this one; Misfit otherwise."""
        ...


device_side: DeviceSide | None = None  # set in a runner that has a device


class Misfit(Exception):
    """An output that isn't of the declared layout; `shape` says that only its size is wrong."""

    def __init__(self, said: str, *, shape: bool = False) -> None:
        super().__init__(said)
        self.shape = shape


def pack(value: Any, *, arrays_only: bool = False) -> bytes:
    """The value as one text and its arrays behind it, each on a boundary of 64 bytes.

    With `arrays_only` everything but arrays and their containers is left out: what a null call carries.
    """
    blobs: list[Any] = []
    end = 0

    def put(blob: Any) -> int:
        nonlocal end
        at, view = end, memoryview(blob)
        end = _rounded(at + view.nbytes)
        blobs.extend((view if view.contiguous else view.tobytes(), bytes(end - at - view.nbytes)))
        return at

    tree = _told(value, put, arrays_only, "data", 0)
    text = json.dumps(tree, separators=(",", ":")).encode()
    start = _rounded(16 + len(text))
    head = struct.pack("<QQ", len(text), start) + text
    return b"".join((head, bytes(start - len(head)), *blobs))


def unpack(buffer: memoryview) -> Any:
    """The value in this buffer; arrays are views of the buffer, not copies."""
    length, start = struct.unpack_from("<QQ", buffer, 0)
    return _made(json.loads(bytes(buffer[16 : 16 + length])), buffer, start)


def made(node: Any, blocks: memoryview) -> Any:
    """The value of one node of a packed text; `blocks` begins where its blocks do."""
    return _made(node, blocks, 0)


def empty_tensor(name: str, shape: list[int], device: str) -> Any:
    """A tensor to be filled, on that device."""
    torch = _library("torch")
    return torch.empty(shape, dtype=getattr(torch, name), device=device)


def copy_tensor(tensor: Any, out: memoryview) -> None:
    """A dense tensor's bytes into this place, once the device is done with them."""
    torch = _library("torch")
    if tensor.numel():
        flat = tensor.reshape(-1).view(torch.uint8)
        torch.frombuffer(out, dtype=torch.uint8, count=flat.numel()).copy_(flat)


def copied(packed: bytes) -> Any:
    """A fresh, writable value of what was packed: nobody else holds any part of it."""
    return unpack(memoryview(bytearray(packed)))


def _library(name: str) -> Any:
    return sys.modules.get(name) or importlib.import_module(name)


def _rounded(size: int) -> int:
    return (size + ALIGN - 1) // ALIGN * ALIGN


def _told(value: Any, put: Any, bare: bool, where: str, depth: int) -> Any:
    if depth > DEPTH_CAP:
        raise Unsendable(f"{where} is nested more than {DEPTH_CAP} deep")
    kind = type(value)
    if bare and kind not in (list, tuple, dict) and _array_kind(value) is None:
        return None
    if value is None or kind is bool or kind is str or kind is float or (kind is int and value.bit_length() < 8192):
        return value
    if kind is list:
        if (packed := _homogeneous(value)) is not None:
            return None if bare else [packed[0], put(packed[1]), len(value)]
        return ["l", [_told(v, put, bare, f"{where}[{n}]", depth + 1) for n, v in enumerate(value)]]
    if isinstance(value, tuple):  # named ones, too
        return ["t", [_told(v, put, bare, f"{where}[{n}]", depth + 1) for n, v in enumerate(value)]]
    if kind is dict:
        pairs = [[_key(k, where), _told(v, put, bare, f"{where}[{k!r}]", depth + 1)] for k, v in value.items()]
        return ["d", pairs]
    if kind in (bytes, bytearray):
        return ["b" if kind is bytes else "B", put(value), len(value)]
    if kind is complex:
        return ["c", value.real, value.imag]
    if kind is array.array and value.typecode not in "uw":
        return ["a", value.typecode, put(value), len(value) * value.itemsize]
    return _told_array(value, put, where)


def _key(key: Any, where: str) -> Any:
    if type(key) in (str, int, bool, float) or key is None:
        return key
    if type(key) is tuple and all(type(k) in (str, int) for k in key):
        return ["t", list(key)]
    raise Unsendable(f"{where} has a key of type {type(key).__name__}")


def _homogeneous(value: list[Any]) -> tuple[str, Any] | None:
    """A list of plain ints or of plain floats as one block, or None."""
    if len(value) < 4:
        return None
    kinds = set(map(type, value))
    if kinds == {float}:
        return "f", array.array("d", value)
    if kinds == {int}:
        try:
            return "q", array.array("q", value)
        except OverflowError:
            return None
    return None


def _array_kind(value: Any) -> str | None:
    root = type(value).__module__.partition(".")[0]
    if type(value) is array.array:
        return "array"
    if root == "numpy" and hasattr(value, "dtype"):
        return "numpy"
    if root == "torch" and hasattr(value, "element_size"):
        return "torch"
    return None


def _order(strides: Any, shape: Any) -> list[int]:
    return sorted(range(len(shape)), key=lambda d: (-strides[d], d)) if len(shape) > 1 else list(range(len(shape)))


def _told_array(value: Any, put: Any, where: str) -> Any:
    match _array_kind(value):
        case "numpy":
            np = _library("numpy")

            if value.dtype.hasobject or value.dtype.names:
                raise Unsendable(f"{where} is a numpy array of dtype {value.dtype}")
            if not isinstance(value, np.ndarray):
                return ["s", value.dtype.str, put(value.tobytes())]
            order = _order(value.strides, value.shape)
            dense = value.transpose(order)
            if not dense.flags.c_contiguous:
                order, dense = list(range(value.ndim)), np.ascontiguousarray(value)
            plain = dense.reshape(-1).view(np.uint8) if dense.size and dense.itemsize else dense.tobytes()
            return ["n", value.dtype.str, list(dense.shape), put(plain), order]
        case "torch":
            order = _order(value.stride(), value.shape)
            dense = value.detach().permute(order)
            if not dense.is_contiguous():
                order, dense = list(range(value.dim())), value.detach().contiguous()
            return ["T", str(value.dtype)[6:], list(dense.shape), put(_torch_bytes(dense)), order, value.device.type]
        case _:
            raise Unsendable(f"{where} is a {type(value).__name__}, which can't be sent to a runner")


def _torch_bytes(tensor: Any) -> Any:
    torch = _library("torch")

    flat = tensor.cpu().contiguous().reshape(-1).view(torch.uint8)
    out = bytearray(flat.numel())
    if flat.numel():
        torch.frombuffer(out, dtype=torch.uint8).copy_(flat)
    return out


def _undo(order: list[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _made(node: Any, buffer: memoryview, start: int) -> Any:
    if not isinstance(node, list):
        return node
    match node:
        case ["n", dtype, shape, at, order]:
            np = _library("numpy")

            made = np.ndarray(shape, dtype, buffer, start + at)
            return made if order == sorted(order) else made.transpose(_undo(order))
        case ["T", name, shape, at, order, device]:
            return _made_tensor(name, shape, start + at, order, device, buffer)
        case ["t", inner]:
            return tuple(_made(v, buffer, start) for v in inner)
        case ["l", inner]:
            return [_made(v, buffer, start) for v in inner]
        case ["d", pairs]:
            return {_made(k, buffer, start): _made(v, buffer, start) for k, v in pairs}
        case ["q" | "f" as code, at, count]:
            block = array.array("q" if code == "q" else "d")
            block.frombytes(buffer[start + at : start + at + 8 * count])
            return block.tolist()
        case ["b", at, size]:
            return bytes(buffer[start + at : start + at + size])
        case ["B", at, size]:
            return bytearray(buffer[start + at : start + at + size])
        case ["a", typecode, at, size]:
            made_array = array.array(typecode)
            made_array.frombytes(buffer[start + at : start + at + size])
            return made_array
        case ["c", real, imag]:
            return complex(real, imag)
        case ["s", dtype, at]:
            np = _library("numpy")

            return np.ndarray((), dtype, buffer, start + at)[()]
        case ["G" | "H" as kind, inner] if device_side is not None:
            return device_side.made(inner, None if kind == "G" else buffer[start:])
        case _:
            raise Unsendable("a packed value that nobody packed")


def _made_tensor(name: str, shape: list[int], at: int, order: list[int], device: str, buffer: memoryview) -> Any:
    torch = _library("torch")

    dtype, count = getattr(torch, name), 1
    for size in shape:
        count *= size
    made = (
        torch.frombuffer(buffer, dtype=dtype, count=count, offset=at).reshape(shape)
        if count
        else torch.empty(shape, dtype=dtype)
    )
    if order != sorted(order):
        made = made.permute(_undo(order))
    return made if device == "cpu" else made.to(device)


# ------------------------------------------------------------------------------------------------- what comes back


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where each part of an output stands and of what type it is: made from the reference's output, by the judge
    only."""

    tree: Any
    size: int

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

    def text(self) -> str:
        """For the runner."""
        return json.dumps({"tree": self.tree, "size": self.size}, separators=(",", ":"))

    def write(self, output: Any, buffer: memoryview) -> None:
        """The runner's part: the output's bytes into the buffer, or Misfit."""
        _write(self.tree, output, buffer, "output")

    def read(self, found: bytes | bytearray) -> Any:
        """The judge's part: a plain value out of exactly these bytes, or Misfit. It never looks at a length it
        didn't set."""
        if len(found) != self.size:
            raise Misfit("the output buffer was cut short", shape=True)
        try:
            return _read(self.tree, memoryview(found))
        except (ValueError, OverflowError) as error:  # bytes that no value of that type has: letters beyond the last
            raise Misfit(f"bytes that no value has: {error}") from None


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
        case _ if _array_kind(value) == "numpy" and value.dtype.kind in "fc":
            return (expected + (value - expected) * factor).astype(value.dtype)
        case _ if _array_kind(value) == "torch" and value.is_floating_point():
            return (expected.double() + (value.double() - expected.double()) * factor).to(value.dtype)
        case _:
            return value


def differs(value: Any, expected: Any) -> bool:
    """Whether two packed values aren't the same, byte by byte."""
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
    kind = _array_kind(value)
    if kind != _array_kind(expected) or tuple(value.shape) != tuple(expected.shape):
        return False
    library = _library(kind or "")
    if kind == "torch" and value.element_size() == 1:
        value, expected = value.float(), expected.float()
    return not bool((~library.isfinite(value) & library.isfinite(expected)).any())


def _finite_array(value: Any) -> bool:
    match _array_kind(value):
        case "numpy" if value.dtype.kind in "fc":
            return bool(_library("numpy").isfinite(value).all())
        case "torch" if value.is_floating_point() or value.is_complex():
            wide = value.float() if value.element_size() == 1 else value  # of floats of 8 bits not all is implemented
            return bool(_library("torch").isfinite(wide).all())
        case _:
            return True


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
        width = max(16, value.bit_length() // 8 + 9)
        return ["i", room(width), width]
    if kind is float:
        return ["g", room(8)]
    if kind is complex:
        return ["c", room(16)]
    if kind in (str, bytes, bytearray):
        cap = 2 * len(value.encode("utf-8", "surrogatepass") if kind is str else value) + 64
        return [{str: "u", bytes: "b", bytearray: "B"}[kind], room(8 + cap), cap]
    if kind is list:
        if (packed := _homogeneous(value)) is not None:
            return [packed[0], room(8 * len(value)), len(value)]
        return ["l", [_laid(v, room, f"{where}[{n}]", depth + 1) for n, v in enumerate(value)]]
    if isinstance(value, tuple):  # named ones, too
        return ["t", [_laid(v, room, f"{where}[{n}]", depth + 1) for n, v in enumerate(value)]]
    if kind is dict:
        return ["d", [[_key(k, where), _laid(v, room, f"{where}[{k!r}]", depth + 1)] for k, v in value.items()]]
    if kind is array.array and value.typecode not in "uw":
        return ["a", value.typecode, room(len(value) * value.itemsize), len(value)]
    match _array_kind(value):
        case "numpy" if not value.dtype.hasobject and not value.dtype.names:
            np = _library("numpy")

            if not isinstance(value, np.ndarray):
                return ["s", value.dtype.str, room(value.dtype.itemsize)]
            return ["n", value.dtype.str, list(value.shape), room(value.nbytes), value.nbytes]
        case "torch":
            size = value.numel() * value.element_size()
            return ["T", str(value.dtype)[6:], list(value.shape), room(size), size, value.device.type]
        case _:
            raise Unsendable(f"{where} is a {kind.__name__}, which can't come back from a runner")


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
    elif kind == "n":
        _write_numpy(node, value, out, where)
    elif kind == "T":
        write_torch(node, value, out, where)
    elif kind in ("G", "H") and device_side is not None:
        device_side.take(node[1], value, None if kind == "G" else out, where)
    else:
        _write_leaf(node, value, out, where)


def _write_leaf(node: Any, value: Any, out: memoryview, where: str) -> None:
    kind = node[0]
    try:
        match kind:
            case "q" | "f":
                fit(isinstance(value, list), f"{where} is a {type(value).__name__}; a list was expected")
                fit(len(value) == node[2], f"{where} has {len(value)} items; {node[2]} were expected", shape=True)
                out[node[1] : node[1] + 8 * node[2]] = memoryview(array.array("q" if kind == "q" else "d", value)).cast(
                    "B"
                )
            case "0":
                fit(value is None, f"{where} is a {type(value).__name__}; None was expected")
            case "?":
                fit(isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"), f"{where} is no bool")
                out[node[1]] = 1 if value else 0
            case "i":
                out[node[1] : node[1] + node[2]] = operator.index(value).to_bytes(node[2], "little", signed=True)
            case "g":
                struct.pack_into("<d", out, node[1], value)
            case "c":
                struct.pack_into("<dd", out, node[1], complex(value).real, complex(value).imag)
            case "s":
                np = _library("numpy")

                np.ndarray((), node[1], out, node[2])[()] = value
            case "a":
                fit(isinstance(value, array.array) and value.typecode == node[1], f"{where} is no array of {node[1]!r}")
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


def _write_numpy(node: Any, value: Any, out: memoryview, where: str) -> None:
    np = _library("numpy")

    fit(isinstance(value, np.ndarray), f"{where} is a {type(value).__name__}; a numpy array was expected")
    dtype, shape = np.dtype(node[1]), tuple(node[2])
    fit(value.dtype == dtype, f"{where} has dtype {value.dtype}; {dtype} was expected")
    fit(value.shape == shape, f"{where} has shape {value.shape}; {shape} was expected", shape=True)
    if node[4]:
        np.copyto(np.ndarray(shape, dtype, out, node[3]), value)


def write_torch(node: Any, value: Any, out: memoryview, where: str) -> None:
    """A tensor's bytes into its place, or Misfit."""
    torch = _library("torch")

    fit(isinstance(value, torch.Tensor), f"{where} is a {type(value).__name__}; a tensor was expected")
    dtype, shape = getattr(torch, node[1]), tuple(node[2])
    fit(value.dtype == dtype, f"{where} has dtype {value.dtype}; {dtype} was expected")
    fit(tuple(value.shape) == shape, f"{where} has shape {tuple(value.shape)}; {shape} was expected", shape=True)
    fit(value.device.type == node[5], f"{where} is on {value.device.type}; {node[5]} was expected")
    if node[4]:
        torch.frombuffer(out, dtype=dtype, count=value.numel(), offset=node[3]).reshape(shape).copy_(value.detach())


def _read(node: Any, found: memoryview) -> Any:
    kind = node[0]
    match kind:
        case "0":
            return None
        case "l":
            return [_read(n, found) for n in node[1]]
        case "t":
            return tuple(_read(n, found) for n in node[1])
        case "d":
            return {tuple(k[1]) if isinstance(k, list) else k: _read(n, found) for k, n in node[1]}
        case "?":
            fit(found[node[1]] in (0, 1), "a bool that is neither")
            return bool(found[node[1]])
        case "i":
            return int.from_bytes(found[node[1] : node[1] + node[2]], "little", signed=True)
        case "g":
            return struct.unpack_from("<d", found, node[1])[0]
        case "c":
            return complex(*struct.unpack_from("<dd", found, node[1]))
        case "q" | "f":
            numbers = array.array("q" if kind == "q" else "d")
            numbers.frombytes(found[node[1] : node[1] + 8 * node[2]])
            return numbers.tolist()
        case "a":
            made = array.array(node[1])
            made.frombytes(found[node[2] : node[2] + node[3] * made.itemsize])
            return made
        case "u" | "b" | "B":
            return _read_text(kind, node, found)
        case "s":
            _truths(node[1] == "|b1", found[node[2] : node[2] + 1])
            return _library("numpy").ndarray((), node[1], found, node[2])[()]
        case "n":
            block = bytearray(found[node[3] : node[3] + node[4]])
            _truths(node[1] == "|b1", block)
            return _library("numpy").ndarray(tuple(node[2]), node[1], block)
        case _:
            block = bytearray(found[node[3] : node[3] + node[4]])
            _truths(node[1] == "bool", block)
            made_tensor = _made_tensor(node[1], node[2], 0, [], "cpu", memoryview(block))
            return made_tensor if node[5] == "cpu" else made_tensor.to(node[5])


def _truths(are: bool, blob: bytearray | memoryview) -> None:
    """A library that is told that a byte is a truth value may compute with it; whoever wrote it chose which."""
    fit(not are or not bytes(blob).translate(None, b"\0\1"), "a bool that is neither")


def _read_text(kind: str, node: Any, found: memoryview) -> Any:
    length = struct.unpack_from("<Q", found, node[1])[0]
    fit(length <= node[2], "a text longer than its room", shape=True)
    blob = bytes(found[node[1] + 8 : node[1] + 8 + length])
    if kind == "b":
        return blob
    if kind == "B":
        return bytearray(blob)
    try:
        return blob.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise Misfit("a text that isn't UTF-8") from None
