"""Values on their way to a runner, in a typed form of ours.

The two directions differ on purpose. What the judge packs (`pack`/`unpack`) may describe itself: the runner trusts the
judge. What comes back never does: see `layouts`.
numpy and torch are used where a problem has imported them, and never imported for any other reason.
"""

from __future__ import annotations

import array
import importlib
import json
import struct
import sys
from collections.abc import Callable, Collection, Iterator
from functools import partial

from kbslurm_eval.shared import objects, packed_again, strided

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    _Held = dict[tuple[int, str], Any]

    class DeviceSide(Protocol):
        """Who has the arrays that lie on a device, in a runner."""

        def made(self, node: Any, blocks: memoryview | None) -> Any:
            """The value of a node there: over the judge's memory, or of these bytes."""
            ...

        def place(self, node: Any) -> Any:
            """The array where an output is read; None where that can't be had."""
            ...

        def apart(self, node: Any, value: Any) -> Any:
            """The value, or a copy of one that is where another array of the output belongs."""
            ...

        def take(self, node: Any, value: Any, out: memoryview | None, where: str) -> None:
            """The value's bytes into the place of a node there, or into this one; Misfit otherwise."""
            ...

    class Away(Protocol):
        """Who takes the arrays that lie on a device, while a value is packed on the judge's side."""

        def taken(self, value: Any, put: Callable[[Any], int], where: str) -> Any:
            """The node of an array of another library that lies there; None for anything else."""
            ...

        def laid(self, value: Any, node: list[Any]) -> bool:
            """Whether this dense array, which shares its memory with no other, lies there; its node then says so."""
            ...

    class Here(Protocol):
        """The judge's own copy of what lies on a device, where a packed value says that something does."""

        def made(self, node: Any) -> Any:
            """The array of this node."""
            ...

        def raised(self, node: Any, blocks: memoryview) -> Any:
            """The array of this node, which came through the host."""
            ...


ALIGN = 64
DEPTH_CAP = 60
LARGE = 1 << 20  # bytes of a tensor that aren't copied twice
NUMBERS = {bool: "?", int: "q", float: "d"}  # of Python's, where they stand among the arrays, in eight bytes each
WIDTH = 8


class Unsendable(TypeError):
    """A value of a type that can't be sent: the problem's author has to change it."""


device_side: DeviceSide | None = None  # set in runners that have a device


def pack(value: Any, *, arrays_only: bool = False, unseen: Collection[str] | None = None) -> bytes:
    """The value as one text and its arrays behind it, each on a boundary of 64 bytes.

    With `arrays_only` everything but arrays and their containers is left out: what a null call carries. `unseen`: the
    modules that the runner lacks, where values whose class's code it needs are to be refused.
    """
    return b"".join(_parts(value, _Blobs(None, unseen=unseen), arrays_only)[1])


def pack_into(
    value: Any,
    room: Callable[[int], memoryview],
    away: Away | None = None,
    *,
    apart: bool = False,
    unseen: Collection[str] | None = None,
) -> memoryview:
    """The same, in memory of this size that `room` gives. `away`: who takes what lies on a device. `apart`: single
    numbers stand behind the arrays, and the text says no more than their types."""
    found = packed_again.alike(value, apart=apart) if away is None else None
    if found is not None and (known := packed_again.known(found, apart=apart)) is not None:
        return known.pack(found[1], room)
    size, parts = _parts(value, _Blobs(away, apart=apart, unseen=unseen), False)
    whole, at = room(size), 0
    for part in parts:
        end = at + len(part)
        whole[at:end] = part
        at = end
    if found is not None:
        packed_again.remember(found, whole, apart=apart)
    return whole


class _Blobs:
    """The blocks of a packed value, and who takes what doesn't belong there."""

    def __init__(self, away: Away | None, *, apart: bool = False, unseen: Collection[str] | None = None) -> None:
        self.away, self.end, self.unseen = away, 0, unseen
        self.parts: list[Any] = []
        self._apart = apart
        self._numbers: list[tuple[list[Any], bytes]] = []
        self.arrays = strided.Arrays()  # they get their blocks when all are known

    def __call__(self, blob: Any) -> int:
        at, view = self.end, memoryview(blob)
        self.end = _rounded(at + view.nbytes)
        flat = view.cast("B") if view.nbytes and view.c_contiguous else view.tobytes()
        self.parts.extend((flat, bytes(self.end - at - view.nbytes)))
        return at

    def number(self, value: Any) -> Any:
        """What the text says of a single number: its node, where numbers stand apart, or itself."""
        node = apart(value) if self._apart else value
        if node is not value:
            blob = value.to_bytes(WIDTH, "little", signed=True) if node[1] != "d" else struct.pack("<d", value)
            self._numbers.append((node, blob))
        return node

    def lay_numbers(self) -> None:
        """Give those that stand apart their places, one behind another."""
        if self._numbers:
            at = self(b"".join(blob for _, blob in self._numbers))
            for n, (node, _) in enumerate(self._numbers):
                node[2] = at + n * WIDTH


def _parts(value: Any, put: _Blobs, arrays_only: bool) -> tuple[int, list[Any]]:
    """Its size, and the pieces that it is made of, one behind another."""
    tree = _told(value, put, arrays_only, "data", 0)
    put.arrays.lay(put, None if put.away is None else put.away.laid)
    put.lay_numbers()
    text = json.dumps(tree, separators=(",", ":")).encode()
    start = _rounded(16 + len(text))
    head = struct.pack("<QQ", len(text), start) + text
    return start + put.end, [head, bytes(start - len(head)), *put.parts]


def unpack(buffer: memoryview, out: memoryview | None = None, here: Here | None = None) -> Any:
    """The value in this buffer; arrays are views of the buffer, not copies. `out`: where a destination is; `here`: the
    judge's own arrays on a device."""
    length, start = struct.unpack_from("<QQ", buffer, 0)
    return _made(json.loads(bytes(buffer[16 : 16 + length])), buffer, start, out, here)


def told_ahead(head: bytes) -> tuple[Any, int]:
    """What a packed value's arrays are, by what stands before them, and where they begin."""
    length, start = struct.unpack_from("<QQ", head, 0)
    return json.loads(head[16 : 16 + length]), start


class Late:
    """A value with single numbers among its arrays, which is put together when they are there."""

    __slots__ = ("whole",)

    def __init__(self, whole: Callable[[], Any]) -> None:
        self.whole = whole


def made_ahead(ahead: tuple[Any, int], buffer: memoryview, out: memoryview) -> Any:
    """The value whose arrays are those of this buffer, whatever is in it yet; `Late` where numbers stand there, too."""
    held: _Held = {}
    whole = _whole(ahead[0], buffer, ahead[1], out, held)
    return _made(ahead[0], buffer, ahead[1], out, None, held) if whole is None else Late(whole)


def _whole(node: Any, buffer: memoryview, start: int, out: memoryview, held: _Held) -> Callable[[], Any] | None:
    """What puts the value of a node together out of what is made now and of numbers that come late; None if there are
    none in it."""
    match node:
        case ["v", code, at]:
            place = buffer[start + at : start + at + (1 if code == "?" else WIDTH)].cast(code)
            return lambda: place[0]
        case ["s", dtype, at]:
            one = imported("numpy").ndarray((), dtype, buffer, start + at)
            return lambda: one[()]
        case ["t" | "l" | "d" as kind, inner]:
            nodes = [item for _, item in inner] if kind == "d" else inner
            parts = [_whole(item, buffer, start, out, held) for item in nodes]
            late = [(n, part) for n, part in enumerate(parts) if part is not None]
            if not late:
                return None
            made = [
                _made(item, buffer, start, out, None, held) if part is None else None
                for item, part in zip(nodes, parts, strict=True)
            ]
            keys = [_made(key, buffer, start) for key, _ in inner] if kind == "d" else []

            def whole() -> Any:
                for n, part in late:
                    made[n] = part()
                return dict(zip(keys, made, strict=True)) if kind == "d" else tuple(made) if kind == "t" else made

            return whole
        case _:
            return None


def is_arrays(node: Any, *, native: bool = False, single: bool = False) -> bool:
    """Whether everything of this packed text that a call may change is what arrays contain: it can be told before.
    `native`: for compiled code, which is given addresses, so that only what must be put in order isn't an array.
    `single`: numbers that stand among arrays are as good, where a warm-up finds some of their kind there."""
    match node:
        case ["l" | "t", inner]:
            return all(is_arrays(item, native=native, single=single) for item in inner)
        case ["d", pairs]:
            return all(is_arrays(item, native=native, single=single) for _, item in pairs)
        case ["o", _, _, inner] if native:
            return all(is_arrays(item, native=native, single=single) for item in inner)
        case ["n", _, _, _, order] | ["T", _, _, _, order, "cpu"] if native:
            return bool(order == sorted(order))
        case ["q" | "f" | "a" | "b" | "B" | "s", *_] if native:
            return True
        case ["v" | "s", *_] if single:
            return True
        case ["n", *_] | ["T", _, _, _, _, "cpu"] | ["O" | "G" | "P", *_]:
            return True
        case [*_]:
            return False
        case _:
            return True


def apart(value: Any) -> Any:
    """The node of a single number of Python's that stands apart, with no place yet; anything else as it is."""
    kind = type(value)
    if kind not in NUMBERS or (kind is int and not -(1 << 63) <= value < 1 << 63):
        return value
    return ["v", NUMBERS[kind], 0]


def numbers_apart(node: Any) -> Any:
    """A packed text as it is with its single numbers apart, but for their places: the types of all, and no number."""
    match node:
        case ["l" | "t" as kind, inner]:
            return [kind, [numbers_apart(item) for item in inner]]
        case ["d", pairs]:
            return ["d", [[key, numbers_apart(item)] for key, item in pairs]]
        case ["o", kind, meta, inner]:
            return ["o", kind, meta, [numbers_apart(item) for item in inner]]
        case [*_]:
            return node
        case _:
            return apart(node)


def single_numbers(packed: bytes | memoryview) -> list[tuple[int, bytes]]:
    """The numbers that stand among the arrays of a packed value, each with its place behind the text."""
    start = struct.unpack_from("<QQ", packed, 0)[1]
    return [(at, bytes(packed[start + at : start + at + size])) for at, size in _single_places(tree(packed))]


def _single_places(node: Any) -> Iterator[tuple[int, int]]:
    match node:
        case ["l" | "t", inner] | ["o", _, _, inner]:
            for item in inner:
                yield from _single_places(item)
        case ["d", pairs]:
            for _, item in pairs:
                yield from _single_places(item)
        case ["v", _, at]:
            yield at, WIDTH
        case ["s", dtype, at]:
            yield at, int(imported("numpy").dtype(dtype).itemsize)
        case _:
            pass


def head(packed: bytes | memoryview) -> bytes:
    """What stands before the blocks of a packed value."""
    return bytes(packed[: struct.unpack_from("<QQ", packed, 0)[1]])


def text(packed: bytes | memoryview) -> bytes:
    """The text of a packed value, which says everything of it but what its arrays contain."""
    return bytes(packed[16 : 16 + int.from_bytes(packed[:8], "little")])


def tree(packed: bytes | memoryview) -> Any:
    """What a packed text says of its value: every node, without the arrays."""
    return json.loads(text(packed))


def made(node: Any, blocks: memoryview) -> Any:
    """The value of one node of a packed text; `blocks` begins where its blocks do."""
    return _made(node, blocks, 0)


def empty_tensor(name: str, shape: list[int], device: str) -> Any:
    """An uninitialised tensor on that device."""
    torch = imported("torch")
    return torch.empty(shape, dtype=getattr(torch, name), device=device)


def width_of(name: str) -> int:
    """How many bytes an element of a tensor of this type has."""
    torch = imported("torch")
    return int(torch.empty((), dtype=getattr(torch, name)).element_size())


def copy_tensor(tensor: Any, out: memoryview) -> None:
    """A dense tensor's bytes into this place, once the device is done with them."""
    torch = imported("torch")
    if tensor.numel():
        flat = tensor.reshape(-1).view(torch.uint8)
        torch.frombuffer(out, dtype=torch.uint8, count=flat.numel()).copy_(flat)


def fill_tensor(place: Any, value: Any) -> None:
    """This tensor's numbers into a place, which its own memory may be: then it may be that place in another order."""
    found = value.detach()
    try:
        place.copy_(found)
    except RuntimeError:  # torch's word for overlapping memory
        place.copy_(found.clone())


def copied(packed: bytes | memoryview) -> Any:
    """A fresh, writable copy of the packed value that shares nothing with others."""
    return unpack(memoryview(bytearray(packed)))


def loaded(name: str) -> Any:
    """The module if somebody has imported it, or None."""
    return sys.modules.get(name)


def imported(name: str) -> Any:
    return sys.modules.get(name) or importlib.import_module(name)


def _rounded(size: int) -> int:
    return (size + ALIGN - 1) // ALIGN * ALIGN


def _told(value: Any, put: _Blobs, bare: bool, where: str, depth: int) -> Any:
    if depth > DEPTH_CAP:
        raise Unsendable(f"{where} is nested more than {DEPTH_CAP} deep")
    kind = type(value)
    if put.away is not None and (node := put.away.taken(value, put, where)) is not None:
        return node
    if bare and kind not in (list, tuple, dict) and array_kind(value) is None and not objects.is_one(value):
        return None
    if value is None or kind is bool or kind is str or kind is float or (kind is int and value.bit_length() < 8192):
        return put.number(value)
    if kind is list:
        if (packed := as_block(value)) is not None:
            return None if bare else [packed[0], put(packed[1]), len(value)]
        return ["l", [_told(v, put, bare, f"{where}[{n}]", depth + 1) for n, v in enumerate(value)]]
    if kind is tuple:
        return ["t", [_told(v, put, bare, f"{where}[{n}]", depth + 1) for n, v in enumerate(value)]]
    if kind is dict:
        pairs = [[sendable_key(k, where), _told(v, put, bare, f"{where}[{k!r}]", depth + 1)] for k, v in value.items()]
        return ["d", pairs]
    if kind in (bytes, bytearray):
        return ["b" if kind is bytes else "B", put(value), len(value)]
    if kind is complex:
        return ["c", value.real, value.imag]
    if kind is array.array and value.typecode not in "uw":
        return ["a", value.typecode, put(value), len(value) * value.itemsize]
    if array_kind(value) is None or str(getattr(value, "layout", "")).startswith("torch.sparse"):
        node = objects.told(value, lambda part, place: _told(part, put, bare, place, depth + 1), where)
        if node is not None:
            if put.unseen is not None and (why := objects.lacking(node, put.unseen)):
                raise Unsendable(f"{where} {why}")
            return node
    return _told_array(value, put, where)


def sendable_key(key: Any, where: str) -> Any:
    if type(key) in (str, int, bool, float) or key is None:
        return key
    if type(key) is tuple and all(type(k) in (str, int) for k in key):
        return ["t", list(key)]
    raise Unsendable(f"{where} has a key of type {type(key).__name__}")


def as_block(value: list[Any]) -> tuple[str, Any] | None:
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


def array_kind(value: Any) -> str | None:
    root = type(value).__module__.partition(".")[0]
    if type(value) is array.array:
        return "array"
    if root == "numpy" and hasattr(value, "dtype"):
        return "numpy"
    if root == "torch" and hasattr(value, "element_size"):
        return "torch"
    return None


def interface_of(value: Any) -> dict[str, Any] | None:
    """How an array of another library on a device describes itself (`__cuda_array_interface__`); None of others."""
    if array_kind(value) is not None or isinstance(value, type):
        return None
    told = getattr(value, "__cuda_array_interface__", None)
    return told if isinstance(told, dict) else None


def _order(strides: Any, shape: Any) -> list[int]:
    return sorted(range(len(shape)), key=lambda d: (-strides[d], d)) if len(shape) > 1 else list(range(len(shape)))


def _told_array(value: Any, put: _Blobs, where: str) -> Any:
    arrays = put.arrays
    match array_kind(value):
        case "numpy":
            np = imported("numpy")

            if value.dtype.hasobject or value.dtype.names:
                raise Unsendable(f"{where} is a numpy array of dtype {value.dtype}")
            if hasattr(value, "mask"):
                raise Unsendable(f"{where} is a masked array: send its data and its mask as two arrays")
            if not isinstance(value, np.ndarray):
                return ["s", value.dtype.str, put(value.tobytes())]
            order = _order(value.strides, value.shape)
            dense = value.transpose(order)
            node = ["n", value.dtype.str, list(dense.shape), 0, order]
            return arrays.add(value, node, partial(_numpy_bytes, np, dense) if dense.flags.c_contiguous else None)
        case "torch":
            order = _order(value.stride(), value.shape)
            dense = value.detach().permute(order)
            node = ["T", str(value.dtype)[6:], list(dense.shape), 0, order, value.device.type]
            return arrays.add(value, node, partial(_torch_bytes, dense) if dense.is_contiguous() else None)
        case _:
            raise Unsendable(f"{where} is a {type(value).__name__}, which can't be sent to a runner")


def _numpy_bytes(np: Any, dense: Any) -> Any:
    return dense.reshape(-1).view(np.uint8) if dense.size and dense.itemsize else dense.tobytes()


def _torch_bytes(tensor: Any) -> Any:
    torch = imported("torch")

    flat = tensor.cpu().contiguous().reshape(-1).view(torch.uint8)
    if not flat.numel():
        return b""
    if (np := sys.modules.get("numpy")) is not None and flat.numel() >= LARGE:
        return np.asarray(flat)  # its own memory, which the view keeps
    out = bytearray(flat.numel())
    torch.frombuffer(out, dtype=torch.uint8).copy_(flat)
    return out


def _undo(order: list[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _made(
    node: Any,
    buffer: memoryview,
    start: int,
    out: memoryview | None = None,
    here: Here | None = None,
    held: _Held | None = None,
) -> Any:
    """The value of a node. `held`: the blocks that tensors share, by where they are."""
    held = {} if held is None else held
    if not isinstance(node, list):
        return node
    match node:
        case ["O", inner] if out is not None:  # a destination: it is where the answer is read
            return _made(inner, out, 0)
        case ["G", inner] if here is not None:
            return here.made(inner)
        case ["A", *_] if here is not None:
            return here.raised(node, buffer[start:])
        case ["n", _, _, _, dict()]:
            return strided.numpy_array(imported("numpy"), node, buffer, start)
        case ["T", _, _, at, {"size": size}, device]:
            torch = imported("torch")
            if (flat := held.get((at, device))) is None:
                flat = torch.frombuffer(buffer, dtype=torch.uint8, count=size, offset=start + at)
                held[at, device] = flat = flat if device == "cpu" else flat.to(device)
            return strided.tensor(torch, node, flat)
        case ["n", dtype, shape, at, order]:
            np = imported("numpy")

            made = np.ndarray(shape, dtype, buffer, start + at)
            return made if order == sorted(order) else made.transpose(_undo(order))
        case ["T", name, shape, at, order, device]:
            return tensor_from(name, shape, start + at, order, device, buffer)
        case ["t", inner]:
            return tuple(_made(v, buffer, start, out, here, held) for v in inner)
        case ["l", inner]:
            return [_made(v, buffer, start, out, here, held) for v in inner]
        case ["d", pairs]:
            return {_made(k, buffer, start): _made(v, buffer, start, out, here, held) for k, v in pairs}
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
        case ["v", code, at]:
            return struct.unpack_from(f"<{code}", buffer, start + at)[0]
        case ["c", real, imag]:
            return complex(real, imag)
        case ["s", dtype, at]:
            np = imported("numpy")

            return np.ndarray((), dtype, buffer, start + at)[()]
        case ["o", kind, meta, parts]:
            return objects.made(kind, meta, [_made(part, buffer, start, None, here, held) for part in parts])
        case ["G" | "H" as kind, inner] if device_side is not None:
            return device_side.made(inner, None if kind == "G" else buffer[start:])
        case ["P", inner] if device_side is not None:  # a destination on a device
            return device_side.place(inner)
        case _:
            raise Unsendable("a packed value is malformed")


def tensor_from(name: str, shape: list[int], at: int, order: list[int], device: str, buffer: memoryview) -> Any:
    torch = imported("torch")

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
