"""A board's problem in a directory of one's own: written, brought up to date, and read again.

What the service sent is kept in one JSON file beside the files that people read and change. Names from the service are
checked before anything is written: a service that isn't trusted can't reach outside the directory.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kbslurm.errors import Invalid
from kbslurm.problems.folder import FILE_NAME
from kbslurm.trial.pulled_board import MARK, README, PulledBoard, understood
from kbslurm.trial.readme import readme
from kbslurm_eval.shared import recorded

FORMAT = 1
MARK_CAP = 64 << 20
FILE_CAP = 8 << 20
AGAIN = "Get it again: kbslurm problem pull BOARD DIR --force"


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a pull came to, by file name: written, left as it was, and kept because it was changed here."""

    written: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def write(folder: Path, board: PulledBoard, told: Mapping[str, Any], *, force: bool = False) -> Written:
    """Write the directory, or bring it up to date. A file that was changed here stays unless `force`."""
    if folder.exists() and not folder.is_dir():
        raise Invalid(f"{folder} isn't a directory", hint="Name another: kbslurm problem pull BOARD DIR")
    texts, before, came = _texts(board), _pulled_before(folder), Written()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            data, place = text.encode(), folder / name
            there = place.read_bytes() if place.is_file() else None
            if there == data:
                came.same.append(name)
            elif place.exists() and not force and (there is None or before.get(name) != _sha256(there)):
                came.kept.append(name)
            else:
                _put(place, data)
                came.written.append(name)
        kept = {name: text for name, text in board.problem.files.items() if name.endswith(recorded.SUFFIX)}
        content = {**told["content"], "files": kept}
        mark = {
            "format": FORMAT,
            "service": board.service,
            "board": {**told, "content": content},
            "files": {name: _sha256(text.encode()) for name, text in texts.items()},
        }
        _put(folder / MARK, json.dumps(mark, indent=1).encode())
    except OSError as error:
        raise Invalid(f"{folder} can't be written: {error.strerror or error}", hint="Name another directory.") from None
    return came


def is_pulled(folder: Path) -> bool:
    return (folder / MARK).is_file()


def read(folder: Path) -> tuple[PulledBoard, list[str]]:
    """The problem in a directory that was pulled, and which of the problem's files were changed since."""
    mark = _mark(folder)
    if not isinstance(mark, dict) or mark.get("format") != FORMAT:
        raise Invalid(f"{folder / MARK} isn't of this version of kbslurm", hint=AGAIN)
    files: Mapping[str, str] = mark.get("files") or {}
    shas: dict[str, str] = {}
    board = understood(mark.get("board") or {}, mark.get("service"))
    texts = dict(board.problem.files)
    judged = set(_problem_texts(files, board))
    for name in sorted(judged):
        texts[name] = _read(folder / name)
        shas[name] = _sha256(texts[name].encode())
    changed = [name for name in sorted(judged) if shas[name] != files[name]]
    return replace(board, problem=replace(board.problem, files=texts)), changed


def _problem_texts(files: Any, board: PulledBoard) -> Sequence[str]:
    """The names of the problem's own files, without those that are the reader's to change."""
    if not isinstance(files, dict) or not all(isinstance(key, str) and FILE_NAME.match(key) for key in files):
        raise Invalid(f"{MARK} can't be understood", hint=AGAIN)
    own = {README, board.problem.entry, *_templates(board)}
    return [name for name in files if name not in own]


def _texts(board: PulledBoard) -> dict[str, str]:
    """Every file of the directory but the mark."""
    problem = board.problem
    templates = _templates(board)
    found = {name: text for name, text in problem.files.items() if not name.endswith(recorded.SUFFIX)}
    return {**found, **templates, README: readme(board, sorted(templates))}


def _templates(board: PulledBoard) -> dict[str, str]:
    """What to begin with: a first template as the submission, the others beside it under their languages' names."""
    problem = board.problem
    suffix = Path(problem.entry).suffix
    known = [text for text in problem.templates.values() if text.strip()]
    if not known:
        return {problem.entry: begun} if (begun := _begun(board)) else {}
    found: dict[str, str] = {}
    for language, text in problem.templates.items():
        own = f"template_{''.join(letter for letter in language.lower() if letter.isalnum())}{suffix}"
        name = problem.entry if not found else own
        if text.strip() and name not in problem.files:
            found[name] = text
    return found


def _begun(board: PulledBoard) -> str:
    """A first submission in Python for a problem without templates."""
    problem = board.problem
    if problem.lang != "py" or "wrapper" in problem.config:
        return ""
    called = problem.config.get("call", "custom_kernel")
    names = [called] if isinstance(called, str) else list(called)
    parts = "".join(f'\n\ndef {name}(data):\n    raise NotImplementedError("see {README}")\n' for name in names)
    return f"#!POPCORN leaderboard {board.leaderboard}\n{parts}"


def _pulled_before(folder: Path) -> Mapping[str, str]:
    """The digests of what an earlier pull wrote."""
    if not is_pulled(folder):
        return {}
    mark = _mark(folder)
    found = mark.get("files") if isinstance(mark, dict) else None
    return found if isinstance(found, dict) else {}


def _mark(folder: Path) -> Any:
    try:
        with (folder / MARK).open("rb") as opened:
            return json.loads(opened.read(MARK_CAP))
    except (OSError, ValueError, RecursionError):
        raise Invalid(f"{folder / MARK} can't be read", hint=AGAIN) from None


def _read(place: Path) -> str:
    try:
        with place.open("rb") as opened:
            return opened.read(FILE_CAP).decode()
    except FileNotFoundError:
        raise Invalid(f"{place} is missing", hint=AGAIN) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{place} can't be read ({type(error).__name__})", hint=AGAIN) from None


def _put(place: Path, data: bytes) -> None:
    """Written whole or not at all; a link is replaced, not followed."""
    draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        draft.write_bytes(data)
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
