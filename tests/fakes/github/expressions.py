"""The expressions of a workflow: `${{ … }}` and `if:`, as much as our workflow uses; anything else is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_TOKEN = re.compile(
    r"\s*(?:(?P<op>==|!=|&&|\|\||!|\(|\)|,)|'(?P<text>(?:[^']|'')*)'|(?P<word>[A-Za-z_][\w.-]*)|(?P<n>\d+))"
)
_HOLE = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


class Unknown(ValueError):
    """The workflow uses what the real service may know, and this one doesn't."""


def filled(text: Any, context: Mapping[str, Any]) -> Any:
    """The value with its holes filled. A text that is one hole keeps the type of what is in it."""
    if isinstance(text, Mapping):
        return {key: filled(value, context) for key, value in text.items()}
    if isinstance(text, list):
        return [filled(value, context) for value in text]
    if not isinstance(text, str):
        return text
    whole = re.fullmatch(r"\s*\$\{\{(.*?)\}\}\s*", text, re.DOTALL)
    if whole and "${{" not in whole[1]:
        return value_of(whole[1], context)
    return _HOLE.sub(lambda hole: said(value_of(hole[1], context)), text)


def holds(condition: Any, context: Mapping[str, Any]) -> bool:
    """Whether a step with this `if` is done: without a status function it also wants that nothing failed."""
    text = "success()" if condition is None else str(condition)
    if whole := re.fullmatch(r"\s*\$\{\{(.*)\}\}\s*", text, re.DOTALL):
        text = whole[1]
    if not re.search(r"\b(success|failure|always|cancelled)\(", text):
        text = f"success() && ({text})"
    return bool(value_of(text, context))


def said(value: Any) -> str:
    """A value as a text holds it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def value_of(text: str, context: Mapping[str, Any]) -> Any:
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None:
            raise Unknown(f"{text!r} at {at}")
        at = found.end()
        kind = str(found.lastgroup)
        tokens.append((kind, found[kind]))
    value = _either(tokens, context)
    if tokens:
        raise Unknown(f"{text!r}: {tokens[0][1]!r} is left over")
    return value


def _either(tokens: list[tuple[str, str]], context: Mapping[str, Any]) -> Any:
    value = _both(tokens, context)
    while tokens and tokens[0] == ("op", "||"):
        tokens.pop(0)
        other = _both(tokens, context)
        value = value or other
    return value


def _both(tokens: list[tuple[str, str]], context: Mapping[str, Any]) -> Any:
    value = _equal(tokens, context)
    while tokens and tokens[0] == ("op", "&&"):
        tokens.pop(0)
        other = _equal(tokens, context)
        value = value and other
    return value


def _equal(tokens: list[tuple[str, str]], context: Mapping[str, Any]) -> Any:
    value = _one(tokens, context)
    while tokens and tokens[0] in (("op", "=="), ("op", "!=")):
        _, operator = tokens.pop(0)
        other = _one(tokens, context)
        value = (said(value).lower() == said(other).lower()) is (operator == "==")
    return value


def _one(tokens: list[tuple[str, str]], context: Mapping[str, Any]) -> Any:
    if not tokens:
        raise Unknown("an expression ends too early")
    kind, word = tokens.pop(0)
    if (kind, word) == ("op", "!"):
        return not _one(tokens, context)
    if (kind, word) == ("op", "("):
        value = _either(tokens, context)
        _closed(tokens)
        return value
    if kind == "text":
        return word.replace("''", "'")
    if kind == "n":
        return int(word)
    if tokens and tokens[0] == ("op", "("):
        tokens.pop(0)
        given = [] if tokens and tokens[0] == ("op", ")") else [_either(tokens, context)]
        while tokens and tokens[0] == ("op", ","):
            tokens.pop(0)
            given.append(_either(tokens, context))
        _closed(tokens)
        return _called(word, given, context)
    first, *parts = word.split(".")
    if first not in context:
        raise Unknown(f"there is no context {first!r}")
    found = context[first]
    for part in parts:
        found = found.get(part, "") if isinstance(found, Mapping) else ""
    return found


def _closed(tokens: list[tuple[str, str]]) -> None:
    if not tokens or tokens.pop(0) != ("op", ")"):
        raise Unknown("a parenthesis isn't closed")


def _called(name: str, given: list[Any], context: Mapping[str, Any]) -> Any:
    job = context["job"]
    match name:
        case "fromJSON":
            return json.loads(given[0])
        case "endsWith":
            text, end = given
            return said(text).lower().endswith(said(end).lower())
        case "always":
            return True
        case "cancelled":
            return job["status"] == "cancelled"
        case "success":
            return job["status"] == "success"
        case "failure":
            return job["status"] == "failure"
        case _:
            pass
    raise Unknown(f"there is no function {name!r}")
