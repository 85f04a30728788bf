"""A submission's single file: what is accepted, and what its leading comment block says about where it goes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import assert_never

from kbslurm.domain.problem import Lang
from kbslurm.errors import Invalid, TooLarge

SOURCE_CAP = 1_000_000
SUFFIXES = (".py", ".cu", ".cuh", ".cpp")
FILE_NAME_CAP = 255
_NAMED_BOARD = re.compile(r"\A(\ufeff?\s*(?:#|//)\s*!POPCORN\s+leaderboard\s+)\S+", re.IGNORECASE)
_POPCORN = re.compile(r"(?:#|//)\s*!POPCORN\s+(\S+)(.*)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A submission's file, checked. `sha256` is the hash of its bytes."""

    file_name: str
    text: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Directives:
    """The contents of a file's `#!POPCORN` lines."""

    leaderboard: str | None = None
    gpus: tuple[str, ...] = ()


def checked_source(file_name: str, data: bytes) -> Source:
    """The file as a source, or Invalid (TooLarge) saying what is wrong with it."""
    name = checked_file_name(file_name)
    if len(data) > SOURCE_CAP:
        raise TooLarge(
            f"{name} has {len(data):,} bytes, over the limit of {SOURCE_CAP:,}",
            hint="Submit source text, not data or binaries.",
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Invalid(f"{name} isn't UTF-8 (line {line})", hint="Save the file as UTF-8 text.") from None
    if not text.lstrip("\ufeff").strip():
        raise Invalid(f"{name} is empty")
    if "\x00" in text:
        line = text.count("\n", 0, text.index("\x00")) + 1
        raise Invalid(f"{name} contains a NUL character (line {line})", hint="Submit source text, not binaries.")
    return Source(file_name=name, text=text, sha256=hashlib.sha256(data).hexdigest())


def checked_file_name(file_name: str) -> str:
    """The last part of the name, or Invalid if it isn't allowed as a submission's file name."""
    name = PurePosixPath(file_name.replace("\\", "/")).name
    if not name or len(name.encode(errors="replace")) > FILE_NAME_CAP or not name.isprintable():
        raise Invalid(f"{file_name[:80]!r} isn't a valid file name")
    if PurePosixPath(name).suffix.lower() not in SUFFIXES:
        raise Invalid(f"{name} must end in one of {', '.join(SUFFIXES)}", hint="Submit one source file.")
    return name


def check_language(source: Source, lang: Lang) -> None:
    """Refuse a file that a problem in this language doesn't accept."""
    match lang:
        case "py":
            takes: tuple[str, ...] = (".py",)
        case "cu":
            takes = (".cu", ".cuh", ".cpp")
        case _:
            assert_never(lang)
    if PurePosixPath(source.file_name).suffix.lower() not in takes:
        raise Invalid(f"{source.file_name}: this problem accepts {' '.join(takes)}")


def directives(text: str) -> Directives:
    """Read the leading comment block; code ends it. Keys are case-insensitive; unknown ones are ignored."""
    board: str | None = None
    gpus: list[str] = []
    for line in _comment_block(text):
        found = _POPCORN.match(line)
        if found is None:
            continue
        key, values = found[1].lower(), found[2].replace(",", " ").split()
        match key:
            case "leaderboard":
                board = _one_board(board, values)
            case "gpu" | "gpus":
                gpus += values
            case _:
                pass
    return Directives(leaderboard=board, gpus=_once_each(gpus))


def for_board(template: str, board: str) -> str:
    """The template as it is handed out by this board: a `#!POPCORN leaderboard` line in it names this one."""
    lines = template.splitlines(keepends=True)
    for n in range(len(_comment_block(template))):
        lines[n] = _NAMED_BOARD.sub(lambda found: found[1] + board, lines[n])
    return "".join(lines)


def settled_board(found: Directives, asked: str | None) -> str:
    """The board, from URL or flag or from the file. Two different ones are an error."""
    wanted = asked.strip().lower() if asked else None
    if wanted and found.leaderboard and wanted != found.leaderboard:
        raise Invalid(
            f"the file names leaderboard {found.leaderboard}, but you chose {wanted}",
            hint="Change the #!POPCORN line, or submit to the leaderboard that it names.",
        )
    if not (board := wanted or found.leaderboard):
        raise Invalid(
            "no leaderboard given",
            hint="Pass --leaderboard NAME, or begin the file with #!POPCORN leaderboard NAME.",
        )
    return board


def settled_gpus(found: Directives, asked: Sequence[str]) -> tuple[str, ...]:
    """The GPUs, from URL or flag, else from the file; empty if neither names any."""
    return _once_each(asked) or found.gpus


def _one_board(before: str | None, values: Sequence[str]) -> str:
    if len(values) != 1:
        raise Invalid("#!POPCORN leaderboard needs exactly one name", hint="Write #!POPCORN leaderboard NAME.")
    name = values[0].lower()
    if before not in (None, name):
        raise Invalid(
            f"the file names two leaderboards, {before} and {name}", hint="Keep one #!POPCORN leaderboard line."
        )
    return name


def _once_each(names: Sequence[str]) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name.lower(), name)
    return tuple(found.values())


def _comment_block(text: str) -> list[str]:
    block: list[str] = []
    for raw in text.lstrip("\ufeff").splitlines():
        line = raw.strip()
        if line and not line.startswith(("#", "//")):
            break
        if line.startswith(("#include", "#pragma", "#define", "#if")):
            break
        block.append(line)
    return block
