"""What a case needs at least, counted from the shapes of its arrays: operations by a named formula, and bytes.

A multiplication and an addition are two operations. What could be saved by another algorithm (Winograd's, Strassen's)
is counted as if it couldn't, as everybody does.
"""

from __future__ import annotations

import array
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

Shape = tuple[int, ...]
Shapes = Sequence[Shape]


class DoesntFit(ValueError):
    """These arrays aren't those of such an operation."""


def operations(name: str, packed: bytes | memoryview, layout_tree: Any) -> int:
    """How many this operation takes for a packed input and an answer of this layout; DoesntFit otherwise."""
    length, _ = struct.unpack_from("<QQ", packed, 0)
    given = _shapes(_tree(packed, length))
    answered = _shapes(layout_tree, laid=True)
    try:
        if not answered:
            raise DoesntFit
        return COUNTED[name](given, answered)
    except (DoesntFit, IndexError, ValueError):
        shown = [" ".join(map(_shown, shapes)) or "nothing" for shapes in (given, answered)]
        raise DoesntFit(f"arrays of {shown[0][:300]} to {shown[1][:300]} aren't those of {ARRAYS[name]}") from None


def gaps(packed: bytes | memoryview) -> int:
    """How many bytes of a packed input lie between the elements of views: nobody has to read them."""
    length, _ = struct.unpack_from("<QQ", packed, 0)
    sizes: dict[int, int] = {}
    needed: dict[int, int] = {}
    for node in _arrays(_tree(packed, length)):
        match node:
            case [_, dtype, shape, at, {"size": size, "strides": steps}, *_]:
                elements = math.prod(n for n, step in zip(shape, steps, strict=True) if step)
                sizes[at] = size
                needed[at] = needed.get(at, 0) + elements * _width(dtype)
            case _:
                pass
    return sum(max(0, size - needed[at]) for at, size in sizes.items())


def _tree(packed: bytes | memoryview, length: int) -> Any:
    return json.loads(bytes(packed[16 : 16 + length]))


def _width(dtype: str) -> int:
    """Bytes of an element: numpy's types say it, torch's name bits."""
    if dtype[:1] in "<>|=":
        return int(dtype[2:])
    digits = "".join(c for c in dtype.partition("_")[0] if c.isdigit())
    return max(1, int(digits or 8) // 8)


def _arrays(node: Any, *, laid: bool = False) -> list[Any]:
    """Those of a packed input, or of a layout of outputs, whose nodes have nearly the same form."""
    match node:
        case ["l" | "t", inner] | ["o", _, _, inner]:
            return [one for item in inner for one in _arrays(item, laid=laid)]
        case ["d", pairs]:
            return [one for _, item in pairs for one in _arrays(item, laid=laid)]
        case ["n" | "T" | "A", *_]:
            return [node]
        case ["G", inner]:  # on the device
            return [inner]
        case ["q" | "f", _, count] | ["m", _, count, _]:
            return [["n", "<i8", [count], 0, [0]]]
        case ["a", code, *_, size]:
            return [["n", "|u1", [size if laid else size // array.array(code).itemsize], 0, [0]]]
        case _:
            return []


def _shapes(tree: Any, *, laid: bool = False) -> list[Shape]:
    return [_shape(node) for node in _arrays(tree, laid=laid)]


def _shape(node: Any) -> Shape:
    """In the order of its dimensions: a packed one may have been written in another."""
    shape, order = node[2], node[4]
    if isinstance(order, list) and sorted(order) == list(range(len(shape))):
        back = sorted(range(len(order)), key=order.__getitem__)
        return tuple(shape[n] for n in back)
    return tuple(shape)


def _shown(shape: Shape) -> str:
    return "×".join(map(str, shape)) or "1"


def _fits(good: bool) -> None:
    if not good:
        raise DoesntFit


def _matmul(given: Shapes, answered: Shapes) -> int:
    a, b, c = given[0], given[1], answered[0]
    _fits(len(a) >= 1 and len(b) >= 1 and len(answered) == 1)
    if len(a) == 1 or len(b) == 1:  # a vector is a matrix of one row or column
        k = a[0] if len(a) == 1 else b[0]
        _fits(k in (a if len(b) == 1 else b)[-2:] and math.prod(c) * k in (math.prod(a), math.prod(b)))
        return 2 * math.prod(c) * k
    m, n = c[-2:]
    for k in dict.fromkeys((a[-1], a[-2])):
        if sorted(a[-2:]) == sorted((m, k)) and sorted(b[-2:]) == sorted((k, n)):
            _fits(_broadcast(a[:-2], b[:-2]) == c[:-2])
            return 2 * math.prod(c) * k
    if len(b) == 2 and a[:-1] == c[:-1] and sorted(b) == sorted((a[-1], n)):  # a linear layer
        return 2 * math.prod(c) * a[-1]
    raise DoesntFit


def _broadcast(*shapes: Shape) -> Shape:
    found = []
    for sizes in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        most = max(sizes)
        _fits(all(size in (1, most) for size in sizes))
        found.append(most)
    return tuple(reversed(found))


def _elementwise(given: Shapes, answered: Shapes) -> int:
    _fits(bool(given) and all(_broadcast(*given, shape) == shape for shape in answered))
    return sum(map(math.prod, answered))


def _reduction(given: Shapes, answered: Shapes) -> int:
    largest, out = given[0], answered[0]
    left = [size for size in out if size != 1]
    sizes = iter(largest)
    _fits(all(any(size == one for one in sizes) for size in left) and math.prod(out) < math.prod(largest))
    return math.prod(largest) - math.prod(out)


def _attention(given: Shapes, answered: Shapes, pairs: Callable[[int, int], int] = lambda s, t: s * t) -> int:
    q, k, v, out = *given[:3], answered[0]
    _fits({len(q), len(k), len(v), len(out)} <= {3, 4} and len(q) == len(k) == len(v) == len(out))
    _fits(q[:-1] == out[:-1] and k[:-1] == v[:-1] and q[-1] == k[-1] and v[-1] == out[-1] and q[:-3] == k[:-3])
    _fits(q[-3] % k[-3] == 0)  # several heads may share keys
    return 2 * math.prod(q[:-2]) * pairs(q[-2], k[-2]) * (q[-1] + v[-1])


def _causal(given: Shapes, answered: Shapes) -> int:
    return _attention(given, answered, lambda s, t: min(s, t) * (min(s, t) + 1) // 2)


def _conv(given: Shapes, answered: Shapes) -> int:
    x, w, out = given[0], given[1], answered[0]
    _fits(len(x) == len(w) == len(out) and 3 <= len(x) <= 5)
    _fits(x[0] == out[0] and w[0] == out[1] and x[1] % w[1] == 0)
    return 2 * math.prod(out) * math.prod(w[1:])


def _conv_transpose(given: Shapes, answered: Shapes) -> int:
    x, w, out = given[0], given[1], answered[0]
    _fits(len(x) == len(w) == len(out) and 3 <= len(x) <= 5)
    _fits(x[0] == out[0] and x[1] == w[0] and out[1] % w[1] == 0)
    return 2 * math.prod(x) * math.prod(w[1:])


COUNTED: Mapping[str, Callable[[Shapes, Shapes], int]] = {
    "matmul": _matmul,
    "elementwise": _elementwise,
    "reduction": _reduction,
    "attention": _attention,
    "causal_attention": _causal,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
}
ARRAYS: Mapping[str, str] = {
    "matmul": "a matmul: m×k and k×n (either may be transposed) to m×n, with any batch before them",
    "elementwise": "an elementwise operation: inputs that can be broadcast to the answer's shape",
    "reduction": "a reduction: a first input to some of its dimensions",
    "attention": "attention: heads×length×width for queries, keys and values to that of the queries, with a batch",
    "causal_attention": "attention: heads×length×width for queries, keys and values to that of the queries, "
    "with a batch",
    "conv": "a convolution: batch×channels×…, filters×channels×… to batch×filters×…",
    "conv_transpose": "a transposed convolution: batch×channels×…, channels×filters×… to batch×filters×…",
}
