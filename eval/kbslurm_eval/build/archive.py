"""What a builder leaves, as bytes: plain files under plain names, and nothing else that a file system knows.

    "KBBUILD1"  count: u32  then for each file  name's length: u16, name: ASCII, program: u8, mtime in ns: u64,
                                                size: u64, bytes

No links, no devices, no owners, no rights but whether it is a program. The reader takes nothing on trust: a name that
leads anywhere but down, or down further than any build goes, a name twice, a file where another has a folder, more
folders than files may be, a byte too many or too few, and it is Broken: every launch lays all of it out again.
Times are kept because build tools compare them.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAGIC = b"KBBUILD1"
FILES_CAP = 4096
FOLDERS_CAP = 4096
DEPTH_CAP = 24
NAME_CAP = 400
LATEST_NS = 1 << 62  # the latest file time: the year 2116, which every file system can store
_PART = re.compile(r"[A-Za-z0-9_.+=@,#-]{1,200}")
_HEAD = struct.Struct("<HBQQ")


class Broken(ValueError):
    """These bytes aren't a valid archive."""


class TooLarge(ValueError):
    """The files exceed a limit."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One file."""

    name: str
    data: bytes
    program: bool = False
    mtime_ns: int = 0


def digest(entries: Iterable[Entry]) -> str:
    """sha256 over names, kinds and contents, sorted by name. Times don't count."""
    told = hashlib.sha256()
    for entry in sorted(entries, key=lambda e: e.name):
        told.update(f"{entry.name}\0{int(entry.program)}\0{len(entry.data)}\0".encode("ascii"))
        told.update(entry.data)
    return told.hexdigest()


def most(cap: int) -> int:
    """The largest possible archive of files with this many bytes."""
    return cap + len(MAGIC) + 4 + FILES_CAP * (_HEAD.size + NAME_CAP)


def folders(entries: Iterable[Entry]) -> list[str]:
    """Every folder that these files need, once each, parents first."""
    return sorted({above for entry in entries for above in _above(entry.name)})


def written(folder: str, cap: int) -> bytes:
    """The builder's half: the regular files below this folder, without links, files with unusual names, and what is
    gone or can't be read."""
    parts, count, total = [], 0, 0
    inside: set[str] = set()
    for name, path in _files(folder):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # a compiler's processes may still make and remove files of their own
            continue
        with open(fd, "rb") as file:
            found = os.fstat(fd)
            data = file.read(min(found.st_size, cap) + 1) if stat.S_ISREG(found.st_mode) else b""
        if not stat.S_ISREG(found.st_mode):
            continue
        total += max(found.st_size, len(data))
        count += 1
        inside.update(_above(name))
        if total > cap or count > FILES_CAP or len(inside) > FOLDERS_CAP:
            raise TooLarge
        encoded = name.encode("ascii")
        program = bool(found.st_mode & stat.S_IXUSR)
        at = min(max(0, found.st_mtime_ns), LATEST_NS)
        parts.append(_HEAD.pack(len(encoded), program, at, len(data)) + encoded + data)
    return MAGIC + struct.pack("<I", count) + b"".join(parts)


def _files(folder: str) -> Iterator[tuple[str, str]]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(place, name)
            short = os.path.relpath(path, folder)
            if _good(short):
                yield short, path


def read(blob: bytes, cap: int) -> Iterator[Entry]:
    """The judge's half: the files in these bytes, or Broken."""
    if blob[: len(MAGIC)] != MAGIC or len(blob) < len(MAGIC) + 4:
        raise Broken("it has the wrong header")
    (count,) = struct.unpack_from("<I", blob, len(MAGIC))
    if count > FILES_CAP:
        raise Broken("too many files")
    at, total = len(MAGIC) + 4, 0
    seen: set[str] = set()
    folders: set[str] = set()
    for _ in range(count):
        if at + _HEAD.size > len(blob):
            raise Broken("it is truncated")
        length, program, mtime_ns, size = _HEAD.unpack_from(blob, at)
        at += _HEAD.size
        if at + length + size > len(blob):
            raise Broken("it is truncated")
        name = blob[at : at + length].decode("ascii", "replace")
        at += length
        _place(name, seen, folders)
        total += size
        if total > cap or program > 1 or mtime_ns > LATEST_NS:
            raise Broken("it contains a number that is too large")
        yield Entry(name=name, data=blob[at : at + size], program=bool(program), mtime_ns=mtime_ns)
        at += size
    if at != len(blob):
        raise Broken("it has trailing data")


def _good(name: str) -> bool:
    parts = name.split("/")
    fits = 0 < len(name) <= NAME_CAP and len(parts) <= DEPTH_CAP
    return fits and all(_PART.fullmatch(p) and p not in (".", "..") for p in parts)


def _above(name: str) -> set[str]:
    parts = name.split("/")[:-1]
    return {"/".join(parts[: n + 1]) for n in range(len(parts))}


def _place(name: str, seen: set[str], folders: set[str]) -> None:
    """Refuse a name that isn't valid or collides with another."""
    if not _good(name):
        raise Broken("it contains an invalid file name")
    mine = _above(name)
    if name in seen or name in folders or mine & seen:
        raise Broken("it contains a name twice")
    seen.add(name)
    folders |= mine
    if len(folders) > FOLDERS_CAP:
        raise Broken("too many folders")
