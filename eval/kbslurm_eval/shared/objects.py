"""Values other than numbers, texts, arrays and their plain containers, on their way to a runner.

A node `["o", kind, meta, parts]` has plain JSON in `meta` and packed values in `parts`. Objects travel as data: their
class's name and what is in their attributes. The runner takes the class from a module that it can import, its own
copy of the problem's files among them; where it has none, a record of the same name and attributes stands for it. Only
the judge sends objects; outputs never name a class.
"""

from __future__ import annotations

import collections
import enum
import importlib
import sys
from collections.abc import Callable, Collection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Told = Callable[[Any, str], Any]

FACTORIES = {"list": list, "dict": dict, "set": set, "int": int, "float": float, "str": str}
_SPARSE = {
    "torch.sparse_csr": ("crow_indices", "col_indices"), "torch.sparse_csc": ("ccol_indices", "row_indices"),
    "torch.sparse_bsr": ("crow_indices", "col_indices"), "torch.sparse_bsc": ("ccol_indices", "row_indices"),
}  # fmt: skip


def told(value: Any, each: Told, where: str) -> list[Any] | None:
    """The node of such a value, whose parts are packed by `each`; None if it isn't of a kind that travels."""
    kind = type(value)
    if kind in (set, frozenset):
        return _node(kind.__name__, None, list(value), each, where)
    if kind in (slice, range):
        return _node(kind.__name__, None, [value.start, value.stop, value.step], each, where)
    if isinstance(value, collections.OrderedDict | collections.defaultdict):
        factory = getattr(getattr(value, "default_factory", None), "__name__", "")
        name = "defaultdict" if isinstance(value, collections.defaultdict) else "OrderedDict"
        return _node(name, factory, [[k, v] for k, v in value.items()], each, where)
    if isinstance(value, enum.Enum):
        return ["o", "enum", [*_class(kind), value.name], []]
    paths = sys.modules.get("pathlib")  # which takes long to import, and nobody has a path without it
    if paths is not None and isinstance(value, paths.PurePath):
        return ["o", "path", [isinstance(value, paths.Path), str(value)], []]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _node("named", [*_class(kind), list(value._fields)], list(value), each, where)
    if _is_torch(value):
        return _torch_told(value, each, where)
    if kind.__module__.partition(".")[0] == "numpy" and hasattr(value, "str") and hasattr(value, "itemsize"):
        return ["o", "numpy.dtype", value.str, []] if not value.hasobject and value.names is None else None
    if isinstance(value, kind) and (hasattr(kind, "__dataclass_fields__") or _is_plain(kind)):
        held = _attributes(value)
        return _node("record", [*_class(kind), list(held)], list(held.values()), each, where, list(held))
    return None


def is_one(value: Any) -> bool:
    """Whether such a value may have arrays in it."""
    return told(value, lambda part, where: None, "") is not None


def made(kind: str, meta: Any, parts: list[Any]) -> Any:
    """The value of a node, from its parts."""
    match kind:
        case "set" | "frozenset":
            return set(parts) if kind == "set" else frozenset(parts)
        case "slice" | "range":
            return (slice if kind == "slice" else range)(*parts)
        case "OrderedDict":
            return collections.OrderedDict(parts)
        case "defaultdict":
            return collections.defaultdict(FACTORIES.get(meta), parts)
        case "enum":
            return getattr(_named(meta[0], meta[1]), meta[2])
        case "path":
            import pathlib

            return (pathlib.Path if meta[0] else pathlib.PurePath)(meta[1])
        case "named":
            found = _found(meta[0], meta[1])
            return (found or collections.namedtuple(meta[1].rpartition(".")[2], meta[2]))(*parts)
        case "record":
            return _record(meta, parts)
        case "numpy.dtype":
            return importlib.import_module("numpy").dtype(meta)
        case _:
            return _torch_made(kind, meta, parts)


def lacking(node: list[Any], unseen: Collection[str]) -> str:
    """Why a runner couldn't make the value of this node, whose class's code it needs; nothing where it can. `unseen`:
    the modules that aren't there."""
    if node[1] not in ("enum", "module"):
        return ""
    module, name, *rest = node[2]
    if module in unseen:
        return f"needs the class {name} of {module}.py, which submissions don't see; move it to a file that they do"
    kind = _found(module, name)
    if kind is None:
        return f"needs the class {name}, which can't be found in {module} by that name; define it at the file's top"
    if node[1] == "enum" and rest[0] not in getattr(kind, "__members__", ()):
        return f"is several flags of {name} at once; use their number"
    return ""


def _node(kind: str, meta: Any, parts: list[Any], each: Told, where: str, names: list[str] | None = None) -> list[Any]:
    at = [f"{where}.{n}" for n in names] if names is not None else [f"{where}[{n}]" for n in range(len(parts))]
    return ["o", kind, meta, [each(part, place) for part, place in zip(parts, at, strict=True)]]


def _class(kind: type) -> list[str]:
    return [kind.__module__, kind.__qualname__]


def _is_plain(kind: type) -> bool:
    """Whether a class is somebody's own, with its state in its attributes: not of a library, nor of Python."""
    if kind.__module__.partition(".")[0] in sys.stdlib_module_names or kind.__module__ == "builtins":
        return False
    file = str(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")
    return "-packages/" not in file and kind.__flags__ & (1 << 9) != 0  # a class made by `class`


def _attributes(value: Any) -> dict[str, Any]:
    held = dict(getattr(value, "__dict__", {}))
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                held[name] = getattr(value, name)
    return held


def _named(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _found(module: str, name: str) -> Any:
    try:
        return _named(module, name)
    except (ImportError, AttributeError, ValueError):
        return None


def _record(meta: list[Any], parts: list[Any]) -> Any:
    kind = _found(meta[0], meta[1])
    if not isinstance(kind, type):
        kind = type(meta[1].rpartition(".")[2], (), {"__repr__": lambda one: f"{type(one).__name__}({vars(one)})"})
    one: Any = object.__new__(kind)
    for name, part in zip(meta[2], parts, strict=True):
        object.__setattr__(one, name, part)
    return one


# --------------------------------------------------------------------------------------------------------------- torch


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    kinds = () if torch is None else (torch.dtype, torch.device, torch.Size, torch.Tensor, torch.nn.Module)
    return isinstance(value, kinds)


def _torch_told(value: Any, each: Told, where: str) -> list[Any] | None:
    torch: Any = sys.modules["torch"]
    if isinstance(value, torch.dtype):
        return ["o", "dtype", str(value)[6:], []]
    if isinstance(value, torch.device):
        return ["o", "device", str(value), []]
    if isinstance(value, torch.Size):
        return ["o", "size", list(value), []]
    if isinstance(value, torch.nn.Module):
        return _module_told(value, each, where)
    shape = list(value.shape)
    if str(value.layout) == "torch.sparse_coo":
        value = value.coalesce()
        return _node("coo", shape, [value.indices(), value.values()], each, where)
    if (names := _SPARSE.get(str(value.layout))) is not None:
        parts = [*(getattr(value, name)() for name in names), value.values()]
        return _node(str(value.layout)[6:], shape, parts, each, where)
    return None


def _module_told(module: Any, each: Told, where: str) -> list[Any] | None:
    """A module by its class, weights, buffers, parts and other attributes. Hooks don't travel."""
    torch: Any = sys.modules["torch"]
    usual = set(vars(torch.nn.Module())) - {"training"}
    rest = {name: value for name, value in vars(module).items() if name not in usual}
    groups = (module._parameters, module._buffers, module._modules, rest)
    needs = [name for name, value in module._parameters.items() if value is not None and value.requires_grad]
    names = [list(group) for group in groups]
    parts = [value for group in groups for value in group.values()]
    meta = [*_class(type(module)), names, needs, sorted(module._non_persistent_buffers_set)]
    return _node("module", meta, parts, each, where, [name for group in names for name in group])


def _torch_made(kind: str, meta: Any, parts: list[Any]) -> Any:
    torch: Any = sys.modules.get("torch") or importlib.import_module("torch")
    match kind:
        case "dtype":
            return getattr(torch, meta)
        case "device":
            return torch.device(meta)
        case "size":
            return torch.Size(meta)
        case "coo":
            return torch.sparse_coo_tensor(*parts, meta, is_coalesced=True)
        case "sparse_csr" | "sparse_csc" | "sparse_bsr" | "sparse_bsc":
            return getattr(torch, f"{kind}_tensor")(*parts, size=meta)
        case _:
            return _module_made(torch, meta, parts)


def _module_made(torch: Any, meta: list[Any], parts: list[Any]) -> Any:
    module, name, names, needs, passing = meta
    kind = _named(module, name)
    one = kind.__new__(kind)
    torch.nn.Module.__init__(one)
    left = iter(parts)
    for called in names[0]:
        value = next(left)
        one._parameters[called] = None if value is None else torch.nn.Parameter(value, requires_grad=called in needs)
    one._buffers.update({called: next(left) for called in names[1]})
    one._non_persistent_buffers_set.update(passing)
    one._modules.update({called: next(left) for called in names[2]})
    one.__dict__.update({called: next(left) for called in names[3]})
    return one
