"""The files of a problem's folder, read within limits, and what its task file says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from kbslurm.errors import Invalid, TooLarge
from kbslurm.problems.compiled_code import (
    CompiledReference,
)
from kbslurm.problems.fields import FILE_CAP
from kbslurm.problems.marked_yaml import Marked
from kbslurm.problems.python_code import (
    parsed_code,
)
from kbslurm_eval.shared import recorded as tensors

SUBMISSION = "@SUBMISSION@"
TASK_FILES = ("task.yml", "task.yaml")
ALL_FILES_CAP = 4_000_000
RECORDED_CAP = 8_000_000  # a manifest has twice that, in all
FILES_CAP = 100
LFS = b"version https://git-lfs.github.com/spec/"
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


_seen: ContextVar[dict[Path, bytes] | None] = ContextVar("seen", default=None)


@contextmanager
def recorded() -> Iterator[Mapping[Path, bytes]]:
    """The files that are read in this block, by the paths that name them, with their content."""
    found: dict[Path, bytes] = {}
    before = _seen.set(found)
    try:
        yield found
    finally:
        _seen.reset(before)


def _record(place: Path, data: bytes) -> None:
    if (seen := _seen.get()) is not None:
        seen[Path(os.path.normpath(place))] = data


@dataclass(kw_only=True)
class Folder:
    """Where a problem's files may come from, and how much of them has been read."""

    base: Path
    root: Path
    read_bytes: int = 0
    recorded_chars: int = 0

    def text(self, source: str, at: Marked) -> str:
        """The text of a file named relative to the base, or Invalid."""
        return self.decoded(self._place(source, at), source, at)

    def recorded(self, source: str, at: Marked) -> str:
        """A file of recorded tensors as it is kept, or Invalid."""
        place = self._place(source, at)
        try:
            with place.open("rb") as stream:
                data = stream.read(tensors.CAP + 1)
        except OSError as error:
            raise at.wrong(f"{source} can't be read: {error.strerror or error}") from None
        if data.startswith(LFS):
            raise at.wrong(f"{source} is a Git LFS pointer, not the file", hint="git lfs pull fetches it.")
        if len(data) > tensors.CAP:
            raise TooLarge(f"{source} is larger than {tensors.CAP:,} bytes", file=at.file, line=at.line, key=at.key)
        try:
            tensors.header(data)
        except tensors.NotRecorded as error:
            raise at.wrong(f"{source} {error}") from None
        _record(self.base / source, data)
        text = tensors.packed(data)
        self.recorded_chars += len(text)
        if self.recorded_chars > RECORDED_CAP:
            what = f"the problem's recorded tensors have more than {RECORDED_CAP:,} bytes, compressed and in base64"
            raise TooLarge(what, file=at.file, line=at.line, key=at.key)
        return text

    def _place(self, source: str, at: Marked) -> Path:
        if PurePosixPath(source).is_absolute() or "\x00" in source or not source:
            raise at.wrong(f"{source!r} must be a path relative to the problem")
        try:
            place = (self.base / source).resolve(strict=True)
        except (OSError, RuntimeError):
            raise at.wrong(f"there is no file {source}") from None
        if not place.is_relative_to(self.root):
            raise at.wrong(
                f"{source} is outside {self.root.name}/",
                hint="Name the folder that has all of the problem's files with --root, or keep them in its repository.",
            )
        if not place.is_file():
            raise at.wrong(f"{source} isn't a file")
        return place

    def decoded(self, place: Path, source: str, at: Marked) -> str:
        try:
            with place.open("rb") as stream:
                data = stream.read(FILE_CAP + 1)
        except OSError as error:
            raise at.wrong(f"{source} can't be read: {error.strerror or error}") from None
        _record(self.base / source, data)
        self.read_bytes += len(data)
        if len(data) > FILE_CAP or self.read_bytes > ALL_FILES_CAP:
            what = f"{source} is larger than {FILE_CAP:,} bytes"
            if len(data) <= FILE_CAP:
                what = f"the problem's files have more than {ALL_FILES_CAP:,} bytes together"
            raise TooLarge(what, file=at.file, line=at.line, key=at.key)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise at.wrong(f"{source} isn't UTF-8 text") from None


@dataclass(kw_only=True)
class Task:
    """A task.yml while it is being read."""

    file: Path
    table: Mapping[str, Marked]
    own: Mapping[str, Marked]
    folder: Folder
    warnings: list[str] = field(default_factory=list)

    def warn(self, at: Marked | None, message: str) -> None:
        place = f"{at.file}:{at.line}: {at.key}" if at else str(self.file)
        self.warnings.append(f"{place}: {message}")


def sharing_notes(file: Path, reference: str, found: CompiledReference) -> tuple[str, ...]:
    if reference not in found.shared:
        return ()
    return (f"{file}: {reference} defines the data types, so submissions see all of it; move the types to a header",)


def accepted_texts(base: Path, suffixes: tuple[str, ...] = (".py",)) -> list[str]:
    folder = base / "submissions" / "accepted"
    if not folder.is_dir():
        return []
    named = [file for file in sorted(folder.iterdir()) if file.name.endswith(suffixes)]
    found = [file for file in named[:20] if file.is_file() and not file.is_symlink()]
    texts = []
    for file in found:
        if file.stat().st_size <= FILE_CAP:
            data = file.read_bytes()
            _record(file, data)
            texts.append(data.decode("utf-8", errors="replace"))
    return texts


def is_python(text: str) -> bool:
    try:
        parsed_code(text, Path("template"), "template")
    except Invalid:
        return False
    return True


def repository_root(start: Path) -> Path | None:
    """The repository that this directory lies in."""
    return next((place for place in (start, *start.parents) if (place / ".git").exists()), None)
