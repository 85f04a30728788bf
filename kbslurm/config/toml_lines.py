"""The line of each key in a TOML file, which tomllib doesn't tell."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping

Where = tuple[str | int, ...]
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def lines_of(text: str) -> dict[Where, int]:
    """The line of each key in valid TOML. Strings, comments and nested brackets are skipped."""
    lines: dict[Where, int] = {}
    counts: dict[Where, int] = {}
    table: Where = ()
    for number, statement in _statements(text):
        if statement.startswith("[["):
            name = _absolute(_keys(statement[2:])[0], counts)
            counts[name] = counts.get(name, -1) + 1
            table = (*name, counts[name])
            lines.setdefault(table, number)
        elif statement.startswith("["):
            table = _absolute(_keys(statement[1:])[0], counts)
        else:
            keys, _ = _keys(statement)
            for n in range(1, len(keys) + 1):
                lines.setdefault((*table, *keys[:n]), number)
            continue
        for n in range(1, len(table) + 1):
            lines.setdefault(table[:n], number)
    return lines


def header_line(text: str, table: Where) -> int | None:
    """The line of this table's own header, if it has one."""
    for number, statement in _statements(text):
        if statement.startswith("[") and not statement.startswith("[[") and _keys(statement[1:])[0] == table:
            return number
    return None


def _absolute(name: Where, counts: Mapping[Where, int]) -> Where:
    """`[a.b]` below `[[a]]` means the last of the a's."""
    found: Where = ()
    for key in name[:-1]:
        found = (*found, key)
        if found in counts:
            found = (*found, counts[found])
    return (*found, *name[-1:])


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each key = value and each [header] with its first line."""
    at, line, depth = 0, 1, 0
    start: int | None = None
    began = 1
    while at < len(text):
        char = text[at]
        if char == "\n":
            if depth == 0 and start is not None:
                yield began, text[start:at]
                start = None
            line += 1
            at += 1
        elif char == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif char.isspace():
            at += 1
        else:
            if start is None:
                start, began = at, line
            end = _string_end(text, at) if char in "\"'" else at + 1
            depth += (char in "[{") - (char in "]}")
            line += text.count("\n", at, end)
            at = end
    if start is not None:
        yield began, text[start:]


def _string_end(text: str, at: int) -> int:
    """The position after the string that begins here."""
    quote = text[at]
    mark = quote * 3 if text.startswith(quote * 3, at) else quote
    at += len(mark)
    while at < len(text):
        if quote == '"' and text[at] == "\\":
            at += 2
        elif text.startswith(mark, at):
            at += len(mark)
            while len(mark) == 3 and text.startswith(quote, at):
                at += 1  # up to two quotation marks may precede the closing three
            return at
        else:
            at += 1
    return at


def _keys(text: str) -> tuple[Where, int]:
    """The dotted key at the start of this text, and where it ends."""
    keys: list[str | int] = []
    at = 0
    while True:
        while at < len(text) and text[at] in " \t":
            at += 1
        if at < len(text) and text[at] in "\"'":
            end = _string_end(text, at)
            keys.append(str(tomllib.loads(f"k = {text[at:end]}")["k"]))
        else:
            found = BARE_KEY.match(text, at)
            end = found.end() if found else at
            keys.append(text[at:end])
        at = end
        while at < len(text) and text[at] in " \t":
            at += 1
        if at >= len(text) or text[at] != ".":
            return tuple(keys), at
        at += 1
