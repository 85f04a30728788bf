"""An archive as a folder: written in one piece or not at all, and read again.

`data/` has a file of JSON lines for each table, `parquet/` the same tables for whoever has pyarrow, `index.html` opens
from disk, and `SHA256SUMS` lists every file, as `sha256sum --check` reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from zipfile import ZIP_DEFLATED, ZipFile

from kbslurm.api.archive_site import write_site
from kbslurm.domain.archive import ADDED_LATER, END, FORMAT, TABLES, Kind, Row
from kbslurm.errors import BackendTrouble, Invalid

SUMS = "SHA256SUMS"
DATA, PARQUET = "data", "parquet"
_LINE = re.compile(r"([0-9a-f]{64})  ([^\n]+)")
_CHUNK = 1 << 20
_as_text = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, kw_only=True)
class Written:
    """What was written: rows by table, files, and the digest of `SHA256SUMS`, which stands for everything."""

    number: int
    rows: Mapping[str, int]
    files: int
    bytes: int
    digest: str


def check_free(out: Path) -> None:
    """Invalid unless a new archive can be written there."""
    try:
        if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
            raise Invalid(f"{out} exists already", hint="Name a folder that doesn't: nothing is overwritten.")
        if not out.parent.is_dir():
            raise Invalid(f"there is no folder {out.parent}", hint="Make it first.")
    except OSError as error:
        raise Invalid(f"can't look at {out} ({error.strerror})", hint="Check its permissions.") from None


class Table(Protocol):
    """A table that is being written as Parquet."""

    def add(self, row: Row) -> None: ...


OpenTable = Callable[[Path, Mapping[str, Kind]], AbstractContextManager[Table]]
Tell = Callable[[str], None]


def write(
    rows: Iterable[tuple[str, Row]],
    out: Path,
    *,
    private: bool,
    parquet: OpenTable | None = None,
    tell: Tell = lambda phase: None,
) -> Written:
    """Write the archive beside its place, and move it there once it is complete; also as Parquet, if that can be. Says
    what comes after the last row."""
    part = out.parent / f".{out.name}.{secrets.token_hex(4)}.part"
    try:
        part.mkdir(mode=0o700 if private else 0o777)
        number, counts = _write_tables(rows, part, parquet=parquet)
        tell("writing the pages")
        write_site(lambda table: read(part, table), part)
        tell("computing the files' digests")
        files, size = _write_sums(part)
        digest = _sha256(part / SUMS)
        part.rename(out)  # onto nothing, or an empty folder
    except OSError as error:
        raise Invalid(f"can't write the archive ({error.strerror})", file=out) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Written(number=number, rows=counts, files=files, bytes=size, digest=digest)


def zipped(folder: Path, name: str, out: BinaryIO) -> None:
    """The whole archive as one file, in which it is a folder of that name."""
    try:
        with ZipFile(out, "w", ZIP_DEFLATED) as file:
            for one in sorted((*_files(folder), folder / SUMS)):
                file.write(one, f"{name}/{one.relative_to(folder)}")
    except OSError as error:
        raise BackendTrouble(
            "archive", f"can't be written ({error.strerror})", hint="The service's temporary folder may be full."
        ) from None


def _write_tables(
    rows: Iterable[tuple[str, Row]], part: Path, *, parquet: OpenTable | None
) -> tuple[int, dict[str, int]]:
    counts = dict.fromkeys(TABLES, 0)
    number = None
    for folder in (DATA, PARQUET)[: 1 if parquet is None else 2]:
        (part / folder).mkdir()
    with ExitStack() as opened:
        lines = {
            name: opened.enter_context((part / DATA / f"{name}.jsonl").open("w", encoding="utf-8")) for name in TABLES
        }
        also = {}
        if parquet is not None:
            for name, columns in TABLES.items():
                also[name] = opened.enter_context(parquet(part / PARQUET / f"{name}.parquet", columns))
        for table, row in rows:
            if table == END:
                if row["rows"] != sum(counts.values()):
                    break
                number = int(row["archive"])
                continue
            if table not in TABLES or row.keys() != TABLES[table].keys():
                raise Invalid(
                    f"the service sends a table {table!r} that this version of kbslurm doesn't know",
                    hint="Use the service's version.",
                )
            counts[table] += 1
            lines[table].write(_as_text({name: row[name] for name in TABLES[table]}) + "\n")
            if parquet is not None:
                also[table].add(row)
    if number is None:
        raise BackendTrouble("archive", "the service stopped before the archive's end", hint="Try again.")
    return number, counts


def read(folder: Path, table: str) -> Iterator[Row]:
    """A table's rows, one at a time; Invalid if its file isn't one."""
    file = folder / DATA / f"{table}.jsonl"
    at = 0
    try:
        with file.open(encoding="utf-8") as lines:
            for at, line in enumerate(lines, 1):  # noqa: B007 - for whoever reads the error
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError(f"it isn't a row of {table}")
                whole = dict.fromkeys(ADDED_LATER.get(table, ())) | row
                if whole.keys() != TABLES[table].keys():
                    raise ValueError(f"it isn't a row of {table}")
                yield whole
    except OSError as error:
        raise Invalid(f"can't be read ({error.strerror})", file=file) from None
    except ValueError as error:
        raise Invalid(f"isn't readable: {error}", file=file, line=at or None) from None


def check_archive(folder: Path) -> Row:
    """The archive's board, or Invalid if this isn't an archive that this version reads."""
    if not (folder / SUMS).is_file() or not (folder / DATA / "board.jsonl").is_file():
        raise Invalid(f"{folder} isn't an archive", hint="Name the folder that `kbslurm archive` wrote.")
    board = next(read(folder, "board"), None)
    if board is None:
        raise Invalid("it is empty", file=folder / DATA / "board.jsonl")
    if board["format"] != FORMAT:
        raise Invalid(
            f"{folder} has format {board['format']}, and this version reads {FORMAT}",
            hint=f"Use kbslurm {board['version']}.",
        )
    return board


def changed(folder: Path) -> tuple[int, list[str]]:
    """How many files `SHA256SUMS` lists, and what isn't as it says."""
    said = _sums(folder)
    found: list[str] = []
    there = {str(file.relative_to(folder)): file for file in _files(folder)}
    for name in sorted(said.keys() | there.keys()):
        if name not in there:
            found.append(f"{name} is missing")
        elif name not in said:
            found.append(f"{name} isn't listed in {SUMS}")
        elif there[name].is_symlink() or _sha256(there[name]) != said[name]:
            found.append(f"{name} was changed")
    return len(said), found


def _sums(folder: Path) -> dict[str, str]:
    file = folder / SUMS
    try:
        text = file.read_bytes().decode("utf-8")
    except (OSError, ValueError):
        raise Invalid("can't be read", file=file) from None
    found = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            raise Invalid(f"has a line that isn't a digest and a file: {line[:80]!r}", file=file)
        found[match[2]] = match[1]
    if text != _as_sums(found):
        raise Invalid("was changed: its lines aren't in order", file=file)
    return found


def _as_sums(found: Mapping[str, str]) -> str:
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(found.items()))


def _write_sums(part: Path) -> tuple[int, int]:
    files = {str(file.relative_to(part)): file for file in _files(part)}
    text = _as_sums({name: _sha256(file) for name, file in files.items()})
    (part / SUMS).write_text(text, encoding="utf-8")
    return len(files), sum(file.stat().st_size for file in files.values())


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names if Path(place, name) != folder / SUMS)


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    try:
        with file.open("rb") as opened:
            while chunk := opened.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise Invalid(f"can't be read ({error.strerror})", file=file) from None
    return digest.hexdigest()


def as_answer(found: Written, out: Path, board: str, *, private: bool) -> dict[str, Any]:
    """What `--json` says of it."""
    return {
        "leaderboard": board,
        "out": str(out),
        "archive": found.number,
        "private": private,
        "rows": dict(found.rows),
        "files": found.files,
        "bytes": found.bytes,
        "sha256": found.digest,
    }
