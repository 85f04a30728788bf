"""Text and JSON in a form that Postgres can store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from psycopg.types.json import Jsonb


def clean(text: str) -> str:
    """Text that Postgres can store: no NUL, no lone surrogates."""
    return text.replace("\0", "�").encode("utf-8", "replace").decode()


def as_jsonb(value: Any) -> Jsonb:
    """JSON that Postgres can store."""
    return Jsonb(value, dumps=_dumps)


def _dumps(value: Any) -> str:
    text = json.dumps(value, allow_nan=False)
    # In jsonb, \\u0000 is a backslash and four digits; only an odd number of backslashes makes it a NUL.
    return json.dumps(_without_nul(value), allow_nan=False) if "\\u0000" in text or "\\ud" in text else text


def _without_nul(value: Any) -> Any:
    match value:
        case str():
            return clean(value)
        case Mapping():
            return {clean(str(key)): _without_nul(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_without_nul(inner) for inner in value]
        case _:
            return value
