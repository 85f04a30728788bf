"""The JSON schema of a table that is read as a dataclass."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal


def schema_of(kind: type[Any]) -> dict[str, Any]:
    """The JSON schema of a table that is read as this dataclass."""
    kinds = typing.get_type_hints(kind)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for field in dataclasses.fields(kind):
        described = dict(field.metadata.get("schema") or _schema_of_value(kinds[field.name]))
        for name, said in (("doc", "description"), ("least", "minimum"), ("most", "maximum")):
            if name in field.metadata:
                described[said] = field.metadata[name]
        if field.default is not dataclasses.MISSING and isinstance(field.default, str | int | float):
            described["default"] = field.default
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            required.append(field.name)
        properties[field.name] = described
    found: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    if kind.__doc__ and not kind.__doc__.startswith(f"{kind.__name__}("):
        found["description"] = kind.__doc__.partition("\n")[0]
    return found | ({"required": required} if required else {})


def _schema_of_value(kind: Any) -> dict[str, Any]:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _schema_of_value(next(one for one in inner if one is not types.NoneType))
    if dataclasses.is_dataclass(kind):
        return schema_of(typing.cast("type[Any]", kind))
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is tuple:
        return {"type": "array", "items": _schema_of_value(inner[0])}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema_of_value(inner[1])}
    return {"type": {str: "string", Path: "string", int: "integer", float: "number", bool: "boolean"}[kind]}
