"""YAML that remembers where each value was, so that every error can point at file, line and key.

Only plain YAML is read: tables, lists, strings, numbers, booleans. Tags, merge keys, duplicate keys and documents that
expand beyond their size are refused. Dates stay strings: a deadline's time zone isn't for YAML to decide.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml

from kbslurm.errors import Invalid

Unmarked = None | bool | int | float | str | list["Unmarked"] | dict[str, "Unmarked"]
T = TypeVar("T", bound=str)

YAML_CAP = 1_000_000
NODES_CAP = 50_000
DEPTH_CAP = 20
SENTENCE_CAP = 600


@dataclass(frozen=True, kw_only=True)
class Marked:
    """One value, with its place. Its methods return the value as the required type, or raise Invalid with the place."""

    file: Path
    line: int
    key: str
    value: bool | int | float | str | list[Marked] | dict[str, Marked] | None
    raw: str = ""

    def wrong(self, message: str, *, hint: str | None = None) -> Invalid:
        """The error that says what is wrong here, on one line."""
        return Invalid(
            " ".join(message.split())[:SENTENCE_CAP], file=self.file, line=self.line, key=self.key or None, hint=hint
        )

    @property
    def kind(self) -> str:
        """What it is, in words."""
        match self.value:
            case None:
                return "empty"
            case bool():
                return "true or false"
            case int() | float():
                return "a number"
            case str():
                return "a string"
            case list():
                return "a list"
            case dict():
                return "a table"

    def table(self) -> dict[str, Marked]:
        if isinstance(self.value, dict):
            return self.value
        raise self.wrong(f"must be a table, not {self.kind}")

    def items(self) -> list[Marked]:
        if isinstance(self.value, list):
            return self.value
        raise self.wrong(f"must be a list, not {self.kind}")

    def text(self) -> str:
        """A string; a number or boolean counts as the text that was written (`name: 2026`)."""
        if isinstance(self.value, str | int | float):
            return self.raw
        raise self.wrong(f"must be a string, not {self.kind}")

    def texts(self) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items())

    def flag(self) -> bool:
        if isinstance(self.value, bool):
            return self.value
        raise self.wrong(f"must be true or false, not {self.kind}")

    def number(self, low: float, high: float) -> float:
        """A number from low to high."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.wrong(f"must be a number, not {self.kind}")
        if not low <= self.value <= high:
            raise self.wrong(f"{self.raw} isn't between {low:g} and {high:g}")
        return float(self.value)

    def integer(self, low: int, high: int) -> int:
        """A whole number from low to high."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.wrong(f"must be a whole number, not {self.raw or self.kind}")
        if not low <= self.value <= high:
            raise self.wrong(f"{self.value} isn't between {low} and {high}")
        return self.value

    def one_of(self, *options: T) -> T:
        for option in options:
            if self.value == option:
                return option
        raise self.wrong(f"{self.raw or self.kind} isn't one of {', '.join(options)}")

    def unmarked(self) -> Unmarked:
        """The value without its marks."""
        match self.value:
            case list():
                return [item.unmarked() for item in self.value]
            case dict():
                return {key: item.unmarked() for key, item in self.value.items()}
            case _:
                return self.value


def read_yaml(file: Path) -> Marked:
    """The file's single document, or Invalid with the place of the error."""
    try:
        with file.open("rb") as stream:
            data = stream.read(YAML_CAP + 1)
    except OSError as error:
        raise Invalid(f"can't be read: {error.strerror or error}", file=file) from None
    if len(data) > YAML_CAP:
        raise Invalid(f"larger than {YAML_CAP} bytes", file=file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid("not UTF-8", file=file, line=data.count(b"\n", 0, error.start) + 1) from None
    return parsed_yaml(text, file)


def parsed_yaml(text: str, file: Path) -> Marked:
    """The single document in this text; `file` is the name used in errors."""
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        told = " ".join(part for part in (error.context, error.problem) if part)
        raise Invalid(f"not YAML: {told}", file=file, line=mark.line + 1 if mark else None) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        told = str(error).partition("\n")[0] or "nested too deeply"
        raise Invalid(f"not YAML: {told}", file=file) from None
    if node is None:
        raise Invalid("the file is empty", file=file)
    return _YamlParser(file).marked(node, "", 0)


FLOAT_WITHOUT_A_DOT = (
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe reader, which also takes 1e-5 for a number; YAML 1.1 requires a dot in it, which people don't
    write."""


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(*FLOAT_WITHOUT_A_DOT)


class _YamlParser:
    def __init__(self, file: Path) -> None:
        self.file, self.seen = file, 0

    def marked(self, node: yaml.Node, key: str, depth: int) -> Marked:
        self.seen += 1
        line = node.start_mark.line + 1
        if self.seen > NODES_CAP or depth > DEPTH_CAP:
            raise Invalid("the document expands too much", file=self.file, line=line, key=key or None)
        value: list[Marked] | dict[str, Marked] | bool | int | float | str | None
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            value = [self.marked(item, f"{key}[{n}]", depth + 1) for n, item in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            value = dict(self.pairs(node, key, depth))
        elif isinstance(node, yaml.ScalarNode):
            return Marked(file=self.file, line=line, key=key, value=self.scalar(node, key), raw=node.value)
        else:
            raise Invalid(f"the tag {node.tag} isn't allowed", file=self.file, line=line, key=key or None)
        return Marked(file=self.file, line=line, key=key, value=value)

    def pairs(self, node: yaml.MappingNode, key: str, depth: int) -> Iterator[tuple[str, Marked]]:
        lines: dict[str, int] = {}
        for name_node, value_node in node.value:
            line = name_node.start_mark.line + 1
            if not isinstance(name_node, yaml.ScalarNode) or name_node.tag == "tag:yaml.org,2002:merge":
                raise Invalid("a key must be a plain word", file=self.file, line=line, key=key or None)
            name = str(name_node.value)
            shown = name[:80] if name.isprintable() else ascii(name[:80])
            inner = f"{key}.{shown}" if key else shown
            if name in lines:
                raise Invalid(f"appears twice, first on line {lines[name]}", file=self.file, line=line, key=inner)
            lines[name] = line
            found = self.marked(value_node, inner, depth + 1)
            # A list or table begins on the line after its key, but a reader looks at the key's line.
            yield name, Marked(file=found.file, line=line, key=inner, value=found.value, raw=found.raw)

    def scalar(self, node: yaml.ScalarNode, key: str) -> bool | int | float | str | None:
        line = node.start_mark.line + 1
        kind = node.tag.rpartition(":")[2]
        try:
            match kind:
                case "null":
                    return None
                case "bool":
                    return bool(_CONSTRUCTOR.construct_yaml_bool(node))
                case "int":
                    return int(_CONSTRUCTOR.construct_yaml_int(node))
                case "float":
                    return self.finite(float(_CONSTRUCTOR.construct_yaml_float(node)))
                case "str":
                    return str(node.value)
                case _:
                    raise ValueError(f"the tag {node.tag} isn't allowed")
        except ValueError as error:
            raise Invalid(f"{node.value[:40]!r}: {error}", file=self.file, line=line, key=key or None) from None

    @staticmethod
    def finite(number: float) -> float:
        if not math.isfinite(number):
            raise ValueError("not a finite number")
        return number


_CONSTRUCTOR = yaml.constructor.SafeConstructor()


def unknown_keys(table: Mapping[str, Marked], known: frozenset[str]) -> list[str]:
    """A warning for each unknown key."""
    return [
        f"{item.file}:{item.line}: {item.key}: unknown key, ignored"
        for name, item in table.items()
        if name not in known
    ]
