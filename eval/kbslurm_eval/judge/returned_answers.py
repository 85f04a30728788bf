"""The reference's own answer as a submission's comes back: plain containers and arrays, and named tuples as such.

What travels has no classes. The judge has those of the reference's named tuples, so that a check may ask for a part of
an answer by its name.
"""

from __future__ import annotations

from typing import Any

from kbslurm_eval.shared.layouts import Layout
from kbslurm_eval.shared.values import array_kind, as_block, imported

Names = Any  # nested as the answer is: (class, [names of the parts]), [names of any item], {key: names}; None: plain


def returned(value: Any) -> Any:
    """What this answer would be if it had come from a runner. Arrays on a device stay there."""
    if isinstance(value, tuple):
        return tuple(map(returned, value))
    if isinstance(value, dict):
        return {key: returned(one) for key, one in value.items()}
    if isinstance(value, list):
        return list(value) if as_block(value) is not None else list(map(returned, value))
    layout = Layout.of(value)
    if layout.tree[0] == "A" or (layout.tree[0] == "T" and layout.tree[5] != "cpu"):
        return value
    room = bytearray(layout.size)
    layout.write(value, memoryview(room))
    return layout.read(room)


def lost_class(value: Any) -> str:
    """The name of the first class in this answer that doesn't come back; empty if all of it does."""
    kind = type(value)
    if isinstance(value, tuple | list | dict):
        is_kept = kind in (tuple, list, dict) or _is_named(kind)
        if isinstance(value, list) and as_block(value) is not None:
            return ""
        parts = value.values() if isinstance(value, dict) else value
        return next(filter(None, map(lost_class, parts)), "") if is_kept else kind.__name__
    library = array_kind(value)
    if library == "numpy" and isinstance(value, imported("numpy").ndarray):
        return "" if kind is imported("numpy").ndarray else kind.__name__
    return "" if library != "torch" or kind is imported("torch").Tensor else kind.__name__


def names_in(value: Any) -> Names:
    """Where there are named tuples in the reference's answer."""
    match value:
        case tuple():
            inner = list(map(names_in, value))
            kind = type(value) if _is_named(type(value)) else None
            return (kind, inner) if kind is not None or any(inner) else None
        case dict():
            of_keys = {key: names_in(one) for key, one in value.items()}
            return of_keys if any(of_keys.values()) else None
        case list() if not set(map(type, value)) <= {int, float, bool, str, complex}:
            first = names_in(value[0])  # its items are alike, however many an answer has
            return [first] if first is not None else None
        case _:
            return None


def named(value: Any, names: Names) -> Any:
    """An answer with the reference's named tuples where it has as many parts."""
    match names:
        case (kind, list() as inner) if type(value) is tuple and len(value) == len(inner):
            parts = [named(one, of_one) for one, of_one in zip(value, inner, strict=True)]
            if kind is None:
                return tuple(parts)
            return kind._make(parts) if hasattr(kind, "_make") else kind(parts)
        case dict() if type(value) is dict:
            return {key: named(one, names.get(key)) for key, one in value.items()}
        case [of_any] if type(value) is list:
            return [named(one, of_any) for one in value]
        case _:
            return value


def _is_named(kind: type) -> bool:
    """A named tuple, or what Python and torch make in C instead (`torch.topk`'s)."""
    return issubclass(kind, tuple) and (hasattr(kind, "_make") or hasattr(kind, "n_sequence_fields"))
