"""A site's file together with the files that it extends: one table, and of each key the file and line where it stands.

    extends = "region-base"     the file region-base.toml in the same folder: tables merge by key, other values replace
    remove = ["gpus.A100"]      inherited keys that don't hold here
    abstract = true             a base for others, and no site itself

These three keys belong to the file that has them, as `name` does: they are never inherited.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from kbslurm.config.toml_file import dotted, nearest
from kbslurm.config.toml_lines import Where, lines_of
from kbslurm.errors import Misconfigured

OWN_KEYS = ("abstract", "extends", "remove", "name")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_DOCS = "See docs/site-admin.md, Several clusters from one base."


@dataclass(frozen=True, kw_only=True)
class Spot:
    """Where a key stands."""

    file: Path
    line: int | None

    def __str__(self) -> str:
        return self.file.name if self.line is None else f"{self.file.name}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Family:
    """A file with what it inherits. `bases`: the files that it extends, the nearest first. `repeated`: keys that say
    again what would be inherited anyway, and where that is from."""

    file: Path
    data: Mapping[str, Any]
    spots: Mapping[Where, Spot]
    bases: tuple[Path, ...] = ()
    abstract: bool = False
    repeated: Mapping[Where, Spot]

    def spot(self, where: Where) -> Spot:
        """Where this key stands, or the nearest table around it that does."""
        found = (self.spots[where[:n]] for n in range(len(where), 0, -1) if where[:n] in self.spots)
        return next(found, Spot(file=self.file, line=None))

    def wrong(self, where: Where, message: str, fix: str) -> NoReturn:
        """Raise an error at this key, in the file where it stands."""
        spot = self.spot(where)
        raise Misconfigured(message, file=spot.file, line=spot.line, key=dotted(where) or None, fix=fix)


def read(file: Path) -> Family:
    """The file with all that it inherits, or Misconfigured in whichever of the files is wrong."""
    return _read(file, ())


def is_base(file: Path) -> bool:
    """Whether this file says that it is no site but a base for others. One that can't be read isn't."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8")).get("abstract") is True
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return False


def heirs(base: Path) -> list[str]:
    """The names of the files in its folder that extend it themselves."""
    return sorted(file.stem for file in base.parent.glob("*.toml") if _extended_by(file) == base.stem)


def _extended_by(file: Path) -> str | None:
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8")).get("extends")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return None
    return told if isinstance(told, str) else None


def _read(file: Path, below: tuple[Path, ...]) -> Family:
    data, lines = _parsed(file)
    spots = dict(_spots(data, lines, file))
    alone = Family(file=file, data=data, spots=spots, repeated={})
    abstract, extends, removed = (data.pop(key, None) for key in OWN_KEYS[:3])
    if not (abstract is None or isinstance(abstract, bool)):
        alone.wrong(("abstract",), f"{abstract!r} isn't true or false", "Write abstract = true in a base for others.")
    if extends is None:
        if removed is not None:
            alone.wrong(("remove",), "there is nothing to remove: the file extends no other", 'Add extends = "BASE".')
        return Family(file=file, data=data, spots=spots, abstract=bool(abstract), repeated={})
    base = _read(_base_file(alone, extends, below), (*below, file))
    kept, left = _without(alone, base, removed)
    repeated: dict[Where, Spot] = {}
    merged = _merged(kept, data, (), left, repeated)
    return Family(
        file=file,
        data=merged,
        spots=left | spots,
        bases=(base.file, *base.bases),
        abstract=bool(abstract),
        repeated=repeated,
    )


def _parsed(file: Path) -> tuple[dict[str, Any], Mapping[Where, int]]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(
            f"can't be read: {error}", file=file, fix="Give a TOML file; see docs/site-admin.md."
        ) from None
    try:
        return tomllib.loads(text), lines_of(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = re.search(r"at line (\d+)", str(error))
        raise Misconfigured(
            f"not valid TOML: {error}", file=file, line=int(found[1]) if found else None, fix="Fix it on that line."
        ) from None


def _spots(data: Mapping[str, Any], lines: Mapping[Where, int], file: Path) -> Iterator[tuple[Where, Spot]]:
    """Of every table and key, the line, or that of the nearest table around it."""
    for where, _ in _walked(data, ()):
        line = next((lines[where[:n]] for n in range(len(where), 0, -1) if where[:n] in lines), None)
        yield where, Spot(file=file, line=line)


def _walked(data: Mapping[str, Any], at: Where) -> Iterator[tuple[Where, Any]]:
    for key, value in data.items():
        yield (*at, key), value
        if isinstance(value, dict):
            yield from _walked(value, (*at, key))


def _base_file(heir: Family, extends: object, below: Sequence[Path]) -> Path:
    """The file that this one extends, in its folder."""
    here = ("extends",)
    if not isinstance(extends, str) or not _FILE.fullmatch(extends) or extends.endswith(".toml"):
        heir.wrong(
            here, f"{extends!r} isn't the name of a file in this folder", 'Write it without .toml: extends = "BASE".'
        )
    file = heir.file.with_name(f"{extends}.toml")
    chain = [*below, heir.file]
    if file in chain:
        names = " → ".join(one.name for one in (*chain[chain.index(file) :], file))
        heir.wrong(here, f"the file extends itself: {names}", "Remove one of these extends.")
    if not file.is_file():
        known = [one.stem for one in heir.file.parent.glob("*.toml") if one != heir.file]
        heir.wrong(here, f"there is no {file.name} in {heir.file.parent}", nearest(extends, known))
    return file


def _without(heir: Family, base: Family, removed: object) -> tuple[dict[str, Any], dict[Where, Spot]]:
    """What is inherited, and where it stands, without what the heir removes."""
    data, spots = copy.deepcopy(dict(base.data)), dict(base.spots)
    for key in OWN_KEYS:
        data.pop(key, None)
        spots.pop((key,), None)
    here = ("remove",)
    if removed is None:
        return data, spots
    if not isinstance(removed, list) or not all(isinstance(one, str) for one in removed):
        heir.wrong(here, "must be a list of keys", 'Write it like remove = ["gpus.A100", "max_time"].')
    for text in removed:
        where = _keys_in(text)
        if where is None:
            heir.wrong(here, f"{text!r} isn't a key", 'Write it as in the base, like "gpus.A100" or "max_time".')
        table: Any = data
        for step in where[:-1]:
            table = table.get(step) if isinstance(table, dict) else None
        if not isinstance(table, dict) or where[-1] not in table:
            known = [dotted(at) for at, _ in _walked(data, ())]
            said = nearest(text, known) if len(known) < 12 else (nearest(text, known).partition("Known here")[0])
            heir.wrong(here, f"{text} isn't in {base.file.name}, so it can't be removed", said or _DOCS)
        del table[where[-1]]
        _forget(spots, where)
    return data, spots


def _keys_in(text: str) -> Where | None:
    try:
        told: Any = tomllib.loads(f"{text} = 0") if "\n" not in text else {}
    except tomllib.TOMLDecodeError:
        return None
    where: list[str | int] = []
    while isinstance(told, dict) and len(told) == 1:
        (key,) = told
        where.append(key)
        told = told[key]
    return tuple(where) if where and told == 0 else None


def _forget(spots: dict[Where, Spot], where: Where) -> None:
    for at in [at for at in spots if at[: len(where)] == where]:
        del spots[at]


def _merged(
    base: dict[str, Any],
    own: Mapping[str, Any],
    at: Where,
    spots: dict[Where, Spot],
    repeated: dict[Where, Spot],
) -> dict[str, Any]:
    """The heir's tables over the base's. `spots`, those of the base, lose what the heir replaces."""
    for key, value in own.items():
        where = (*at, key)
        there = base.get(key)
        if isinstance(value, dict) and isinstance(there, dict):
            _merged(there, value, where, spots, repeated)
            continue
        if key in base and there == value and type(there) is type(value):
            repeated[where] = spots[where]
        _forget(spots, where)
        base[key] = value
    return base
