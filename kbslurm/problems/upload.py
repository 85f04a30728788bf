"""An uploaded problem: a zip of its folder, or one reference file. Unpacked safely, loaded, and removed.

People who may upload are trusted like problem authors: the reference runs in the judge.
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
from pathlib import Path, PurePosixPath

from kbslurm.domain import zipped
from kbslurm.domain.problem import Problem
from kbslurm.errors import Invalid, KbslurmError
from kbslurm.problems import folder, loading

PACKED_CAP = 12_000_000
UNPACKED_CAP = 64_000_000
FILES_CAP = 500
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
        for name, content in zipped.contents(
            data,
            files_cap=FILES_CAP,
            bytes_cap=UNPACKED_CAP,
            hint=PACKED_HINT,
            outside="Pack the problem's own folder.",
        ).items():
            place = root.joinpath(*PurePosixPath(name).parts)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    except OSError as error:
        raise Invalid(f"the zip can't be unpacked ({error.strerror or error})") from None


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
