"""Reading a collection: text files of one folder, within limits, never through a link out of it."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kbslurm.errors import Invalid
from kbslurm.problems.fields import FILE_CAP
from kbslurm.problems.python_code import parsed_code

PARTS = Path(__file__).with_name("parts")
Files = Mapping[str, str | Path]  # by name within the problem: a text, or the file to copy


@dataclass(frozen=True, kw_only=True)
class Found:
    """One problem of a collection: its directory's name here, where it is there, and how its files are made, which
    raises Invalid where it can't be taken. `is_large`: whether these make a CPU run the sizes of a GPU."""

    name: str
    origin: str
    make: Callable[[], Files]
    is_large: Callable[[Files], bool] = lambda _files: False


def text_of(root: Path, file: Path) -> str:
    """The file's text, or Invalid."""
    name = file.relative_to(root)
    place = file.resolve()
    if not place.is_relative_to(root) or not place.is_file():
        raise Invalid(f"{name} is missing, or is a link out of the collection")
    try:
        with place.open("rb") as stream:
            data = stream.read(FILE_CAP + 1)
        if len(data) > FILE_CAP:
            raise Invalid(f"{name} is larger than {FILE_CAP:,} bytes")
        return data.decode("utf-8")
    except OSError as error:
        raise Invalid(f"{name} can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise Invalid(f"{name} isn't UTF-8 text") from None


def part(name: str) -> str:
    """The text of one of our files that go into problems."""
    return (PARTS / name).read_text(encoding="utf-8")


def tree_of(text: str, root: Path, file: Path) -> ast.Module:
    """The syntax tree of a file of the collection, or Invalid."""
    return parsed_code(text, file.relative_to(root), file.name).tree


def json_of(text: str, what: str) -> Any:
    """The JSON in this text, or Invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{what} isn't JSON: {error}") from None


def task_yml(collection: str, origin: str, told: Mapping[str, Any]) -> str:
    """A task.yml that says where it comes from."""
    head = f"# Imported from {collection}: {origin}. `kbslurm problem import` writes it again unless it was changed.\n"
    return head + yaml.safe_dump(dict(told), sort_keys=False, allow_unicode=True, width=110)
