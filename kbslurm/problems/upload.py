"""An uploaded problem: a zip of its folder, or one reference file. Unpacked safely, loaded, and removed.

People who may upload are trusted like problem authors: the reference runs in the judge.
"""

from __future__ import annotations

import dataclasses
import lzma
import re
import stat
import tempfile
import zipfile
import zlib
from io import BytesIO
from pathlib import Path, PurePosixPath

from kbslurm.domain.problem import Problem
from kbslurm.errors import Invalid, KbslurmError, TooLarge
from kbslurm.problems import folder, loading

PACKED_CAP = 4_000_000
UNPACKED_CAP = 16_000_000
FILES_CAP = 500
STEP = 65_536
UPLOAD = "upload"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
PACKED_HINT = "Upload the problem's folder as a zip, without data."


def loaded(file_name: str, data: bytes, *, name: str, entry: str | None = None) -> Problem:
    """The problem in this file under this name, or Invalid; errors name places within the upload. `entry`: the file in
    the zip to load, if it isn't its only task.yml."""
    kept = PurePosixPath(file_name.replace("\\", "/")).name
    if not _NAME.fullmatch(kept):
        raise Invalid(
            f"{kept!r} isn't a valid file name here", hint="Use letters and digits, and . _ - after the first."
        )
    with tempfile.TemporaryDirectory(prefix="kb-problem-") as folder:
        root = Path(folder).resolve() / UPLOAD
        root.mkdir()
        try:
            if kept.lower().endswith(".zip"):
                _unpacked(data, root)
                problem = loading.load(_folder(root) if entry is None else _entry(root, entry), root=root, name=name)
            else:
                (root / kept).write_bytes(data)
                problem = loading.load(root / kept, root=root, name=name)
        except KbslurmError as error:
            error.message = _within(error.message, root)
            error.hint = _within(error.hint, root) if error.hint else error.hint
            raise
        return dataclasses.replace(problem, warnings=tuple(_within(one, root) for one in problem.warnings))


def _unpacked(data: bytes, root: Path) -> None:
    try:
        with zipfile.ZipFile(BytesIO(data)) as packed:
            rows = [row for row in packed.infolist() if not row.is_dir() and not row.filename.startswith("__MACOSX/")]
            if len(rows) > FILES_CAP:
                raise TooLarge(f"the zip has {len(rows)} files, over the limit of {FILES_CAP}", hint=PACKED_HINT)
            if (size := sum(row.file_size for row in rows)) > UNPACKED_CAP:
                raise TooLarge(
                    f"the zip unpacks to {size:,} bytes, over the limit of {UNPACKED_CAP:,}", hint=PACKED_HINT
                )
            for row in rows:
                place = _place(row, root)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(_read(packed, row))
    # What the standard library raises for a faulty or hostile archive.
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, NotImplementedError) as error:
        raise Invalid(f"the zip can't be read ({error})", hint="Pack it again, without a password.") from None
    except (OSError, ValueError) as error:
        raise Invalid(f"the zip can't be unpacked ({getattr(error, 'strerror', None) or error})") from None


def _read(packed: zipfile.ZipFile, row: zipfile.ZipInfo) -> bytes:
    """Unpack one file in small steps: reading it whole could unpack more than the zip declares."""
    if row.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Invalid(f"{row.filename!r} uses an unsupported compression", hint="Pack it as an ordinary zip.")
    found = bytearray()
    with packed.open(row) as file:
        while piece := file.read(STEP):
            found += piece
    return bytes(found)


def _place(row: zipfile.ZipInfo, root: Path) -> Path:
    name = PurePosixPath(row.filename)
    if name.is_absolute() or ".." in name.parts or "\\" in row.filename or "\0" in row.filename:
        raise Invalid(f"{row.filename!r} points outside the zip", hint="Pack the problem's own folder.")
    if stat.S_IFMT(row.external_attr >> 16) not in (0, stat.S_IFREG):
        raise Invalid(f"{row.filename!r} isn't a regular file", hint="Pack the linked files instead of links.")
    return root.joinpath(*name.parts)


def _folder(root: Path) -> Path:
    """The topmost folder with a task.yml."""
    found = sorted(
        (place.parent for known in folder.TASK_FILES for place in root.rglob(known)),
        key=lambda place: len(place.parts),
    )
    if not found:
        raise Invalid(
            "there is no task.yml in the zip", hint="Pack the problem's folder, or upload one reference file."
        )
    if len(found) > 1 and len(found[0].parts) == len(found[1].parts):
        raise Invalid("there are several problems in the zip", hint="Upload one at a time.")
    return found[0]


def _entry(root: Path, entry: str) -> Path:
    name = PurePosixPath(entry)
    if name.is_absolute() or ".." in name.parts or "\0" in entry or not (root / name).is_file():
        raise Invalid(f"the zip has no file {entry!r}", hint="Name a task.yml or a reference file in it.")
    return root / name


def _within(text: str, root: Path) -> str:
    return text.replace(f"{root}/", "").replace(str(root), UPLOAD)
