"""Add settings to a kbslurm.toml without touching the rest: comments, order and spacing stay as they are."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kbslurm.config import settings, toml_file
from kbslurm.config.toml_lines import BARE_KEY, Where, header_line
from kbslurm.errors import Invalid, Misconfigured


def added(text: str, file: Path, table: Sequence[str], keys: Mapping[str, Any]) -> str:
    """The text with these keys in this table, below its header if it has one, else at the end. Invalid if one of
    them is set already, or the table is written in a way that can't be added to."""
    known, where = toml_file.parsed(text, file), tuple(table)
    for key in keys:
        if _has(known.data, (*where, key)):
            line = known.line((*where, key))
            raise Invalid(
                f"{'.'.join(where)}.{key} is already set in {file}{f', line {line}' if line else ''}",
                hint="Change it there; kbslurm place show tells what holds.",
            )
    lines = [f"{_key(key)} = {toml_of(value)}" for key, value in keys.items()]
    at = header_line(text, where)
    if at is not None:
        before = text.splitlines(keepends=True)
        if not before[at - 1].endswith("\n"):
            before[at - 1] += "\n"
        return "".join([*before[:at], *(f"{line}\n" for line in lines), *before[at:]])
    if _has(known.data, where) and any(not isinstance(one, Mapping) for one in _at(known.data, where).values()):
        raise Invalid(
            f"{'.'.join(where)} is written without a header of its own in {file}",
            hint=f"Add these lines to it by hand: {'; '.join(lines)}",
        )
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    header = ".".join(map(_key, where))
    return f"{text}{gap}[{header}]\n" + "".join(f"{line}\n" for line in lines)


def written(file: Path, text: str) -> None:
    """Replace the file by this text in one step, once it is known to be a valid configuration. It keeps its mode and
    owner, and a symbolic link stays one."""
    file = file.resolve()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".kbslurm-", suffix=".toml", dir=file.parent)
    except OSError as error:
        raise Invalid(f"{file} can't be written: {error.strerror}", hint="Check its folder's permissions.") from None
    fresh = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            opened.write(text)
        try:
            settings.load(fresh, lenient=True)
        except Misconfigured as error:
            raise Invalid(f"that would be no valid configuration: {error.message}", hint=error.fix) from None
        _keep_owner_and_mode(fresh, file)
        fresh.replace(file)
    except OSError as error:
        raise Invalid(f"{file} can't be written: {error.strerror}", hint="Check its permissions.") from None
    finally:
        with suppress(FileNotFoundError):
            fresh.unlink()


def _keep_owner_and_mode(fresh: Path, file: Path) -> None:
    if not file.exists():
        fresh.chmod(0o644)
        return
    before, now = file.stat(), fresh.stat()
    if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid):
        os.chown(fresh, before.st_uid, before.st_gid)
    fresh.chmod(before.st_mode & 0o7777)


def toml_of(value: Any) -> str:
    """A value as TOML."""
    match value:
        case bool():
            return str(value).lower()
        case Mapping():
            return "{ " + ", ".join(f"{_key(key)} = {toml_of(one)}" for key, one in value.items()) + " }"
        case list() | tuple():
            return "[" + ", ".join(map(toml_of, value)) + "]"
        case str():
            return _quoted(value)
        case _:
            return str(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in escaped) + '"'


def _key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else _quoted(key)


def _has(data: Mapping[str, Any], where: Where) -> bool:
    here: Any = data
    for key in where:
        if not isinstance(here, Mapping) or key not in here:
            return False
        here = here[key]
    return True


def _at(data: Mapping[str, Any], where: Where) -> Mapping[str, Any]:
    here: Any = data
    for key in where:
        here = here[key]
    return here if isinstance(here, Mapping) else {"": here}
