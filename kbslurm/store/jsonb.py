"""Text and JSON as Postgres can keep them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from psycopg.types.json import Jsonb


def clean(text: str) -> str:
    """What Postgres can keep: no NUL, no half of a surrogate pair."""
    return text.replace("\0", "�").encode("utf-8", "replace").decode()


def as_jsonb(value: Any) -> Jsonb:
    """JSON that Postgres can keep."""
    return Jsonb(value, dumps=_dumps)


def _dumps(value: Any) -> str:
    text = json.dumps(value, allow_nan=False)
    # \\u0000 is a backslash and four digits to jsonb's eye; only an odd number of backslashes makes it a NUL.
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
