"""A submission's file, or its several files as one text: what is accepted, and what its leading comment block says
about where it goes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import assert_never

from kbslurm.domain import solution_json, zipped
from kbslurm.domain.problem import Lang
from kbslurm.errors import Invalid, TooLarge
from kbslurm_eval.shared import bundle

SOURCE_CAP = 1_000_000  # of all files together
SENT_CAP = 2 * SOURCE_CAP  # the same as JSON in a manifest, which has those of a final's five and its lead's
SUFFIXES = (".py", ".cu", ".cuh", ".cpp")
BESIDE = (*SUFFIXES, ".c", ".cc", ".h", ".hh", ".hpp", ".hip", ".inl", ".json", ".toml", ".txt", ".md")
FILES_CAP, DEPTH_CAP, PATH_CAP = 64, 8, 200
ENTRIES = ("submission", "main", "kernel", "solution")  # names of the file that is called, where none is chosen
ZIP = ".zip"
FILE_NAME_CAP = 255
ONLY_TEXT = "Submit source text, not data or binaries."
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
_NAMED_BOARD = re.compile(r"\A(\ufeff?\s*(?:#|//)\s*!POPCORN\s+leaderboard\s+)\S+", re.IGNORECASE)
_POPCORN = re.compile(r"(?:#|//)\s*!POPCORN\s+(\S+)(.*)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A submission's text, checked. `sha256` is the hash of its bytes; `file_name` that of the file that is called."""

    file_name: str
    text: str
    sha256: str

    @property
    def files(self) -> dict[str, str]:
        """Its files by path, first the one that is called."""
        return files_of(self.file_name, self.text)


@dataclass(frozen=True, kw_only=True)
class Directives:
    """The contents of a file's `#!POPCORN` lines."""

    leaderboard: str | None = None
    gpus: tuple[str, ...] = ()


def files_of(file_name: str, text: str) -> dict[str, str]:
    """The files of a stored submission by path, first the one that is called."""
    try:
        return bundle.files(text) if bundle.is_bundle(text) else {file_name: text}
    except bundle.BadBundle:  # stored before there were any
        return {file_name: text}


def bundled(files: Mapping[str, bytes], entry: str | None = None) -> Source:
    """Several files as a source, or Invalid. `entry` is the one that is called, also in a folder; otherwise it is the
    only one, or the only one at the top that is called `submission`, `main`, `kernel` or `solution`."""
    kept, folder = _own_files(files, entry)
    if not kept:
        raise Invalid("there is no file in it", hint="Submit source files.")
    if len(kept) > FILES_CAP:
        raise TooLarge(f"a submission has at most {FILES_CAP} files, not {len(kept)}", hint=ONLY_TEXT)
    if (size := sum(map(len, kept.values()))) > SOURCE_CAP:
        raise TooLarge(f"the files have {size:,} bytes, over the limit of {SOURCE_CAP:,}", hint=ONLY_TEXT)
    for path in kept:
        _check_path(path)
    first = _entry(list(kept), entry, folder)
    if len(kept) == 1:
        return checked_source(first, kept[first])
    texts = {path: checked_text(path, kept[path], may_be_empty=path != first) for path in (first, *kept)}
    return checked_source(first, bundle.joined(texts).encode())


def bundled_zip(data: bytes, entry: str | None = None) -> Source:
    """The files of a zip as a source, or Invalid."""
    outside = "Pack the submission's own folder."
    found = zipped.contents(data, files_cap=8 * FILES_CAP, bytes_cap=SOURCE_CAP, hint=ONLY_TEXT, outside=outside)
    return bundled(found, entry)


def _own_files(files: Mapping[str, bytes], entry: str | None) -> tuple[dict[str, bytes], str]:
    """Without what tools leave behind, and without a folder that all are in; and which folder that was. A folder that
    `entry` names stays: it may be the package that the files import each other from."""
    kept = {
        path: data
        for path, data in sorted(files.items())
        if not any(part.startswith(".") or part in ("__pycache__", "__MACOSX") for part in PurePosixPath(path).parts)
    }
    folder = ""
    while kept and entry not in kept and all("/" in path for path in kept):
        if len({path.partition("/")[0] for path in kept}) > 1:
            break
        folder += next(iter(kept)).partition("/")[0] + "/"
        kept = {path.partition("/")[2]: data for path, data in kept.items()}
    return kept, folder


def _check_path(path: str) -> None:
    parts = PurePosixPath(path).parts
    if not all(map(_PART.match, parts)) or "/".join(parts) != path or len(path) > PATH_CAP or len(parts) > DEPTH_CAP:
        raise Invalid(
            f"{path[:80]!r} isn't a valid path", hint="Use letters, digits and _ . - in the names of files and folders."
        )
    if PurePosixPath(path).suffix.lower() not in BESIDE:
        raise Invalid(f"{path} must end in one of {', '.join(BESIDE)}", hint=ONLY_TEXT)


def _entry(paths: Sequence[str], wanted: str | None, folder: str) -> str:
    if wanted is not None:
        for path in (wanted, wanted.removeprefix(folder)):
            if path in paths:
                return path
        known = ", ".join(folder + path for path in paths[:10])
        raise Invalid(f"there is no file {wanted[:80]!r} in it", hint=f"Choose one of: {known}.")
    top = [path for path in paths if "/" not in path and PurePosixPath(path).suffix.lower() in SUFFIXES]
    if len(top) == 1:
        return top[0]
    for stem in ENTRIES:
        if len(named := [path for path in top if PurePosixPath(path).stem == stem]) == 1:
            return named[0]
    raise Invalid(
        "it isn't clear which of the files is called" if top else "there is no source file at the top",
        hint="Choose it with --entry FILE, or name it submission.py (or .cu).",
    )


def checked_source(file_name: str, data: bytes) -> Source:
    """The file as a source, or Invalid (TooLarge) saying what is wrong with it. A zip, or a solution of
    flashinfer-bench, becomes a source of its files."""
    if file_name.lower().endswith(ZIP):
        return bundled_zip(data)
    if file_name.lower().endswith(solution_json.SUFFIX):
        return _solution(file_name, data)
    name = checked_file_name(file_name)
    text = checked_text(name, data)
    if 6 * len(data) > SENT_CAP and (size := len(json.dumps(text))) > SENT_CAP:
        raise TooLarge(
            f"{name} has {size:,} bytes as it is sent to where it runs, over the limit of {SENT_CAP:,}: a control"
            " character takes six there, and so does one that isn't ASCII",
            hint=ONLY_TEXT,
        )
    if bundle.is_bundle(text):
        _check_bundle(name, text)
    return Source(file_name=name, text=text, sha256=hashlib.sha256(data).hexdigest())


def _solution(file_name: str, data: bytes) -> Source:
    name = PurePosixPath(file_name.replace("\\", "/")).name
    shown = name[:80] if name.isprintable() else "the file"
    found = solution_json.files_of(checked_text(shown, data), shown)
    return bundled({path: text.encode() for path, text in found.items()}, solution_json.ENTRY)


def _check_bundle(name: str, text: str) -> None:
    try:
        found = bundle.files(text)
    except bundle.BadBundle as error:
        raise Invalid(f"{name} lists several files, but {error}") from None
    if len(found) > FILES_CAP:
        raise TooLarge(f"a submission has at most {FILES_CAP} files, not {len(found)}", hint=ONLY_TEXT)
    for path in found:
        _check_path(path)
    if PurePosixPath(next(iter(found))).name != name:
        raise Invalid(f"{name} lists {next(iter(found))} as the file that is called")
    clash = [path for path in found if any(other.startswith(f"{path}/") for other in found)]
    if clash:
        raise Invalid(f"{clash[0]} is both a file and a folder")


def check_beside(source: Source, files: Sequence[str]) -> None:
    """Refuse a submission one of whose files would replace one of the problem's that it may see."""
    if bundle.is_bundle(source.text) and (taken := sorted(set(source.files) & set(files))):
        raise Invalid(f"the problem has a file {taken[0]} of its own", hint="Give yours another name.")


def checked_text(name: str, data: bytes, *, may_be_empty: bool = False) -> str:
    """The text of one file, or Invalid."""
    if len(data) > SOURCE_CAP:
        raise TooLarge(
            f"{name} has {len(data):,} bytes, over the limit of {SOURCE_CAP:,}",
            hint=ONLY_TEXT,
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Invalid(f"{name} isn't UTF-8 (line {line})", hint="Save the file as UTF-8 text.") from None
    if not text.lstrip("\ufeff").strip() and not may_be_empty:
        raise Invalid(f"{name} is empty")
    if "\x00" in text:
        line = text.count("\n", 0, text.index("\x00")) + 1
        raise Invalid(f"{name} contains a NUL character (line {line})", hint="Submit source text, not binaries.")
    return text


def checked_file_name(file_name: str) -> str:
    """The last part of the name, or Invalid if it isn't allowed as a submission's file name."""
    name = PurePosixPath(file_name.replace("\\", "/")).name
    if not name or len(name.encode(errors="replace")) > FILE_NAME_CAP or not name.isprintable():
        raise Invalid(f"{file_name[:80]!r} isn't a valid file name")
    if PurePosixPath(name).suffix.lower() not in SUFFIXES:
        raise Invalid(
            f"{name} must end in one of {', '.join(SUFFIXES)}",
            hint="Submit a source file, a zip of several, or a solution of flashinfer-bench as .json.",
        )
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
    """Read the leading comment block, of several files that of the one which is called; code ends it. Keys are
    case-insensitive; unknown ones are ignored."""
    if bundle.is_bundle(text):
        text = bundle.parts(text)[0]
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
