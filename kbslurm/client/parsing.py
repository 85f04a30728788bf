"""Builds a dataclass from an answer's JSON: its fields give the name and type of each value."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Read = Callable[[Any], Any]
Plan = tuple[tuple[str, str, Read, bool], ...]
_known: dict[type[Any], Plan] = {}


def named(name: str, read: Read | None = None) -> Mapping[str, Any]:
    """For a field's metadata: its name in the answer, and how to convert its value."""
    return {"name": name, "read": read}


def parsed(kind: type[T], row: Mapping[str, Any]) -> T:
    """Parse a row of an answer. Fields with a default may be missing; unknown keys are ignored."""
    plan = _known.get(kind) or _known.setdefault(kind, _plan(kind))
    return kind(**{name: read(row[key]) for name, key, read, needed in plan if needed or key in row})


def _plan(kind: type[Any]) -> Plan:
    """By field: its name, its name in the answer, how it is read, and whether it is required."""
    hints, plan = get_type_hints(kind), []
    for one in fields(kind):
        first, then = one.metadata.get("read"), _reader(hints[one.name])
        read = then if first is None else _one_after_the_other(first, then)
        plan.append((one.name, one.metadata.get("name", one.name), read, one.default is MISSING))
    return tuple(plan)


def _one_after_the_other(first: Read, then: Read) -> Read:
    return lambda value: then(first(value))


def _reader(hint: Any) -> Read:
    """How to build a value of this type from JSON."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union):
        (one,) = (_reader(arm) for arm in inner if arm is not types.NoneType)
        return lambda value: None if value is None else one(value)
    if origin is tuple:
        one = _reader(inner[0])
        return lambda value: tuple(one(part) for part in value)
    if hint is datetime:
        return datetime.fromisoformat
    if hint in (int, float):
        return hint  # type: ignore[no-any-return]
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(parsed, hint)
    return lambda value: value
