"""The parameters of functions in C++ source."""

from __future__ import annotations

import re
from collections.abc import Sequence


def parameters(text: str) -> list[list[str]] | None:
    """Type and name of each parameter of `generate_input` in this text, or None when it isn't there."""
    return function_parameters(text, ("generate_input",))


def function_parameters(text: str, names: Sequence[str]) -> list[list[str]] | None:
    """Type and name of each parameter of the first function of these names that is defined in C++ text."""
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    for name in names:
        found = re.search(rf"[\w>&*]\s+{name}\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)\s*(?:noexcept\s*)?\{{", bare)
        if found is None:
            continue
        told = found.group(1).strip()
        if told in ("", "void"):
            return []
        return [_parameter(part) for part in _split(told)]
    return None


def _split(text: str) -> list[str]:
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += letter in "<({"
        depth -= letter in ">)}"
        if letter == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    return [*parts, part]


def _parameter(text: str) -> list[str]:
    declared = text.partition("=")[0].strip()
    found = re.fullmatch(r"(.*?[\s&*>])([A-Za-z_]\w*)", declared, re.DOTALL)
    kind, name = (found.group(1), found.group(2)) if found else (declared, "")
    return [" ".join(re.sub(r"\bconst\b|&", " ", kind).split()), name]
