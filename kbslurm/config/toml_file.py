"""TOML whose errors point at file, line and key: read a file, and turn its tables into dataclasses.

A field of such a dataclass may say more in its metadata: `doc` (a sentence for the schema), `least` and `most` for
numbers, `check` (a function that returns the value to store, or raises Invalid). A value that can be written in several
ways has `reads`, a function that parses it or raises Invalid, and its `schema`.
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

from kbslurm.config.toml_lines import BARE_KEY, Where, lines_of
from kbslurm.errors import Invalid, Misconfigured

T = TypeVar("T")

_AT_LINE = re.compile(r"at line (\d+)")
_EXAMPLE: Mapping[Any, str] = {str: '"…"', int: "1", float: "1.0", bool: "true"}
_KINDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True, kw_only=True)
class TomlFile:
    """A parsed file that remembers the line of each key."""

    path: Path
    data: Mapping[str, Any]
    lines: Mapping[Where, int]

    def line(self, where: Where) -> int | None:
        """The line of this key, or of the nearest enclosing table that has one."""
        for n in range(len(where), 0, -1):
            if where[:n] in self.lines:
                return self.lines[where[:n]]
        return None

    def wrong(self, where: Where, message: str, fix: str | None = None) -> NoReturn:
        """Raise an error at this key."""
        raise Misconfigured(message, file=self.path, line=self.line(where), key=dotted(where) or None, fix=fix)

    def built(self, kind: type[T], where: Where = (), *, hints: Mapping[str, str] | None = None) -> T:
        """The table at `where` as this dataclass, including everything below it. A missing table counts as empty.

        `hints`: what to do, by the dotted name of a non-existent key that people try.
        """
        table: Any = self.data
        for key in where:
            table = table.get(key, {}) if isinstance(table, Mapping) else {}
        return self._table(kind, table, where, hints or {})

    def _table(self, kind: type[T], raw: Any, where: Where, hints: Mapping[str, str]) -> T:
        if not isinstance(raw, Mapping):
            self.wrong(where, "must be a table", f"Write [{dotted(where)}] above its keys.")
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
            self.wrong(where, f"{value!r} is too small", f"Write at least {least}.")
        if most is not None and value > most:
            self.wrong(where, f"{value!r} is too large", f"Write at most {most}.")
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
                self.wrong(where, f"{raw!r} isn't one of {', '.join(inner)}", nearest(str(raw), inner))
            return raw
        if origin is tuple:
            if not isinstance(raw, list):
                self.wrong(where, "must be a list", 'Write it as ["one", "two"].')
            return tuple(self._value(inner[0], item, (*where, n), hints) for n, item in enumerate(raw))
        if isinstance(origin, type) and issubclass(origin, Mapping):
            if not isinstance(raw, Mapping):
                word = _EXAMPLE.get(inner[1], "…")
                self.wrong(where, "must be a table", f"Write it as {where[-1]} = {{ NAME = {word} }}.")
            return {key: self._value(inner[1], item, (*where, key), hints) for key, item in raw.items()}
        return self._scalar(kind, raw, where)

    def _scalar(self, kind: Any, raw: Any, where: Where) -> Any:
        if kind is Path:
            if isinstance(raw, str) and raw and "\0" not in raw:
                return resolved(raw, self.path.parent)
            self.wrong(where, "must be a path", "Write it in quotation marks.")
        if kind is float and isinstance(raw, int | float) and not isinstance(raw, bool) and not math.isnan(raw):
            return float(raw)
        if type(raw) is not kind or kind is float:  # nan isn't accepted
            self.wrong(where, f"must be {_KINDS.get(kind, str(kind))}, not {raw!r:.60}")
        return raw


def read(path: Path) -> TomlFile:
    """The file, or Misconfigured: not there, not readable, not UTF-8, not TOML."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Misconfigured("the file doesn't exist", file=path, fix="Create it, or choose another file.") from None
    except UnicodeDecodeError:
        raise Misconfigured("it isn't UTF-8 text", file=path, fix="Save it as UTF-8.") from None
    except OSError as error:
        raise Misconfigured(f"it can't be read ({error.strerror})", file=path, fix="Fix its permissions.") from None
    return parsed(text, path)


def parsed(text: str, path: Path) -> TomlFile:
    """The parsed text, or Misconfigured at the line that isn't valid TOML."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        at = _AT_LINE.search(str(error))
        said = str(error).partition(" (at ")[0] or "it isn't valid TOML"
        raise Misconfigured(f"not valid TOML: {said}", file=path, line=int(at[1]) if at else None) from None
    return TomlFile(path=path, data=data, lines=lines_of(text))


def resolved(text: str, base: Path) -> Path:
    """Resolve a path: `~` is the user's home, relative ones start at `base`."""
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # the home directory isn't known
        path = Path(text)
    return path if path.is_absolute() else base.absolute() / path


def dotted(where: Where) -> str:
    """`daemon.local.slots`, `sites.use[2]`."""
    text = ""
    for key in where:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += ("." if text else "") + (key if BARE_KEY.fullmatch(key) else f'"{key}"')
    return text


def nearest(word: str, known: Iterator[str] | Sequence[str] | Mapping[str, Any]) -> str:
    """A suggestion, or the list of known names."""
    words = sorted(known)
    near = difflib.get_close_matches(word, words, n=1)
    if near:
        return f"Did you mean {near[0]}?"
    return f"Known here: {', '.join(words)}." if words else "There are no settings here."
