"""TOML whose errors point at file, line and key: read a file, make dataclasses of its tables, describe them.

A field of such a dataclass may say more in its metadata: `doc` (a sentence for the schema), `least` and `most` for
numbers, `check` (a function that returns the value as it is kept, or raises Invalid). What may be written in several
ways has `reads`, a function of what stands there that returns the value or raises Invalid, and `schema` for it.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from kbslurm.errors import Invalid, Misconfigured

T = TypeVar("T")
Where = tuple[str | int, ...]

_AT_LINE = re.compile(r"at line (\d+)")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_EXAMPLE: Mapping[Any, str] = {str: '"…"', int: "1", float: "1.0", bool: "true"}
_PLAIN = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True, kw_only=True)
class TomlFile:
    """A parsed file that remembers on which line each key stands."""

    path: Path
    data: Mapping[str, Any]
    lines: Mapping[Where, int]

    def line(self, where: Where) -> int | None:
        """The line of this key, or of the nearest table around it that has one of its own."""
        for n in range(len(where), 0, -1):
            if where[:n] in self.lines:
                return self.lines[where[:n]]
        return None

    def wrong(self, where: Where, message: str, fix: str | None = None) -> NoReturn:
        """Raise what is wrong at this key."""
        raise Misconfigured(message, file=self.path, line=self.line(where), key=dotted(where) or None, fix=fix)

    def built(self, kind: type[T], where: Where = (), *, hints: Mapping[str, str] | None = None) -> T:
        """The table at `where` as this dataclass, all below it included. A table that isn't there is an empty one.

        `hints`: what to do, by the dotted name of a key that people try and that doesn't exist.
        """
        table: Any = self.data
        for key in where:
            table = table.get(key, {}) if isinstance(table, Mapping) else {}
        return self._table(kind, table, where, hints or {})

    def _table(self, kind: type[T], raw: Any, where: Where, hints: Mapping[str, str]) -> T:
        if not isinstance(raw, Mapping):
            self.wrong(where, "a table was expected", f"Write [{dotted(where)}] above its keys.")
        fields = {found.name: found for found in dataclasses.fields(kind)}  # type: ignore[arg-type]
        kinds = typing.get_type_hints(kind)
        for key in raw:
            if key not in fields:
                here = (*where, key)
                self.wrong(here, "unknown key", hints.get(dotted(here)) or nearest(key, fields))
        for name, found in fields.items():
            required = found.default is dataclasses.MISSING and found.default_factory is dataclasses.MISSING
            if required and name not in raw:
                self.wrong((*where, name), "is missing")
        told = {key: self._field(fields[key], kinds[key], raw[key], (*where, key), hints) for key in raw}
        return kind(**told)

    def _field(self, field: dataclasses.Field[Any], kind: Any, raw: Any, where: Where, hints: Mapping[str, str]) -> Any:
        if (reads := field.metadata.get("reads")) is not None:
            return self._checked(reads, raw, where)
        value = self._value(kind, raw, where, hints)
        least, most = field.metadata.get("least"), field.metadata.get("most")
        if least is not None and value < least:
            self.wrong(where, f"{value!r} is less than {least}", f"At least {least}.")
        if most is not None and value > most:
            self.wrong(where, f"{value!r} is more than {most}", f"At most {most}.")
        check = field.metadata.get("check")
        if check is None or value is None:
            return value
        return self._checked(check, value, where)

    def _checked(self, check: Callable[[Any], Any], value: Any, where: Where) -> Any:
        try:
            kept = check(value)
        except Invalid as error:
            self.wrong(where, error.message, error.hint)
        return kept

    def _value(self, kind: Any, raw: Any, where: Where, hints: Mapping[str, str]) -> Any:
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin in (types.UnionType, typing.Union):
            return self._value(next(one for one in inner if one is not types.NoneType), raw, where, hints)
        if dataclasses.is_dataclass(kind):
            return self._table(typing.cast("type[Any]", kind), raw, where, hints)
        if origin is Literal:
            if raw not in inner or not isinstance(raw, str):
                self.wrong(where, f"{raw!r} is none of {', '.join(inner)}", nearest(str(raw), inner))
            return raw
        if origin is tuple:
            if not isinstance(raw, list):
                self.wrong(where, "a list was expected", 'Write it as ["one", "two"].')
            return tuple(self._value(inner[0], item, (*where, n), hints) for n, item in enumerate(raw))
        if isinstance(origin, type) and issubclass(origin, Mapping):
            if not isinstance(raw, Mapping):
                word = _EXAMPLE.get(inner[1], "…")
                self.wrong(where, "a table was expected", f"Like this: {where[-1]} = {{ NAME = {word} }}.")
            return {key: self._value(inner[1], item, (*where, key), hints) for key, item in raw.items()}
        return self._plain(kind, raw, where)

    def _plain(self, kind: Any, raw: Any, where: Where) -> Any:
        if kind is Path:
            if isinstance(raw, str) and raw and "\0" not in raw:
                return resolved(raw, self.path.parent)
            self.wrong(where, "a path was expected", "Write it between quotation marks.")
        if kind is float and isinstance(raw, int | float) and not isinstance(raw, bool) and not math.isnan(raw):
            return float(raw)
        if type(raw) is not kind or kind is float:  # nan is no number
            self.wrong(where, f"{_PLAIN.get(kind, str(kind))} was expected, this is {raw!r:.60}")
        return raw


def read(path: Path) -> TomlFile:
    """The file, or Misconfigured: not there, not readable, not UTF-8, not TOML."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Misconfigured("there is no such file", file=path, fix="Create it, or name another.") from None
    except UnicodeDecodeError:
        raise Misconfigured("it isn't UTF-8 text", file=path, fix="Save it as UTF-8.") from None
    except OSError as error:
        raise Misconfigured(f"it can't be read ({error.strerror})", file=path, fix="Correct its permissions.") from None
    return parsed(text, path)


def parsed(text: str, path: Path) -> TomlFile:
    """The file of this text, or Misconfigured at the line where it isn't TOML."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        at = _AT_LINE.search(str(error))
        said = str(error).partition(" (at ")[0] or "it isn't TOML"
        raise Misconfigured(f"not TOML: {said}", file=path, line=int(at[1]) if at else None) from None
    return TomlFile(path=path, data=data, lines=_lines_of(text))


def resolved(text: str, base: Path) -> Path:
    """The path that is meant: `~` is the user's home, relative ones start at `base`."""
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # no home is known
        path = Path(text)
    return path if path.is_absolute() else base.absolute() / path


def dotted(where: Where) -> str:
    """`daemon.local.slots`, `sites.use[2]`."""
    text = ""
    for key in where:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += ("." if text else "") + (key if _BARE.fullmatch(key) else f'"{key}"')
    return text


def nearest(word: str, known: Iterator[str] | Sequence[str] | Mapping[str, Any]) -> str:
    """What may have been meant, or all that there is."""
    words = sorted(known)
    near = difflib.get_close_matches(word, words, n=1)
    if near:
        return f"Did you mean {near[0]}?"
    return f"Known here: {', '.join(words)}." if words else "There is nothing to set here."


# --------------------------------------------------------------------------------------------------------------- lines


def _lines_of(text: str) -> dict[Where, int]:
    """On which line each key of valid TOML stands. Strings, comments and nested brackets are stepped over."""
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


def _absolute(name: Where, counts: Mapping[Where, int]) -> Where:
    """`[a.b]` below `[[a]]` means the last of the a's."""
    found: Where = ()
    for key in name[:-1]:
        found = (*found, key)
        if found in counts:
            found = (*found, counts[found])
    return (*found, *name[-1:])


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each key = value and each [header] with the line that it begins on."""
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
    """Just behind the string that begins here."""
    quote = text[at]
    mark = quote * 3 if text.startswith(quote * 3, at) else quote
    at += len(mark)
    while at < len(text):
        if quote == '"' and text[at] == "\\":
            at += 2
        elif text.startswith(mark, at):
            at += len(mark)
            while len(mark) == 3 and text.startswith(quote, at):
                at += 1  # up to two quotation marks may stand before the closing three
            return at
        else:
            at += 1
    return at


def _keys(text: str) -> tuple[Where, int]:
    """The dotted key that this text begins with, and where it ends."""
    keys: list[str | int] = []
    at = 0
    while True:
        while at < len(text) and text[at] in " \t":
            at += 1
        if at < len(text) and text[at] in "\"'":
            end = _string_end(text, at)
            keys.append(str(tomllib.loads(f"k = {text[at:end]}")["k"]))
        else:
            found = _BARE.match(text, at)
            end = found.end() if found else at
            keys.append(text[at:end])
        at = end
        while at < len(text) and text[at] in " \t":
            at += 1
        if at >= len(text) or text[at] != ".":
            return tuple(keys), at
        at += 1


# -------------------------------------------------------------------------------------------------------------- schema


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
