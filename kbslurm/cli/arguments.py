"""Arguments and options that several commands take, and how they are checked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, get_args

import typer

from kbslurm.errors import Invalid
from kbslurm_eval.shared.wire import Mode


def submission_number(text: str) -> int:
    """A submission's number, also written as people read it: #12."""
    found = text.strip().removeprefix("#")
    if not found.isascii() or not found.isdecimal() or len(found) > 18:
        raise Invalid(
            f"{text[:80]!r} isn't a submission's number",
            hint="It is a whole number, like 12; `kbslurm history` lists yours.",
        )
    return int(found)


def question_number(text: str) -> int:
    """A question's number, also written as people read it: #12."""
    found = text.strip().removeprefix("#")
    if not found.isascii() or not found.isdecimal() or len(found) > 18:
        raise Invalid(f"{text[:80]!r} isn't a question's number", hint="It is a whole number, like 12.")
    return int(found)


def given_text(text: str, what: str) -> str:
    """A text from the command line, checked; `-` reads standard input."""
    from kbslurm.domain.questions import TEXT_CAP, checked_text

    if text == "-":
        try:
            text = sys.stdin.read(4 * TEXT_CAP)
        except (OSError, ValueError):
            raise Invalid(f"the {what} can't be read from standard input", hint="It has to be UTF-8 text.") from None
    return checked_text(text, what)


Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]
As = Annotated[str | None, typer.Option("--as", help="Act as this person (default: $KBSLURM_PERSON, else you).")]

BoardName = Annotated[str, typer.Argument(help="The board's name.")]
PersonName = Annotated[str, typer.Argument(help="The person's name.")]
SubmissionNumber = Annotated[int, typer.Argument(help="The submission's number.", parser=submission_number)]
QuestionNumber = Annotated[int, typer.Argument(help="The question's number.", parser=question_number)]
ServiceAddress = Annotated[
    str | None, typer.Argument(help="The service's address (default: the one in use).", show_default=False)
]
Root = Annotated[
    Path | None,
    typer.Option(
        "--root",
        help="The folder that a problem's files may come from, ../ included (default: the git repository that it is in,"
        " else its own directory).",
        show_default=False,
    ),
]
Entry = Annotated[
    str | None, typer.Option(help="Of a folder or a zip: the file that is called (default: submission.*, main.*, …).")
]
LogJson = Annotated[bool, typer.Option("--log-json", "--json", help="One JSON object per line.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show more detail.")]


def checked_mode(mode: str) -> Mode:
    """The mode with that name, or Invalid."""
    lower = mode.lower()
    if lower not in get_args(Mode):
        raise Invalid(f"there is no mode {mode!r}", hint=f"Choose one of: {', '.join(get_args(Mode))}.")
    found: Mode = lower  # type: ignore[assignment]
    return found


def read_source(file: Path, entry: str | None = None) -> tuple[str, bytes]:
    """A submission's name and bytes, of a folder or a zip those of its files in one; Invalid if it can't be read."""
    from kbslurm.domain.source import SOURCE_CAP, ZIP, bundled_zip

    if file.is_dir():
        from kbslurm.trial.folder_source import folder_source

        source = folder_source(file, entry)
        return source.file_name, source.text.encode()
    data = _bytes_of(file, SOURCE_CAP)
    if file.suffix.lower() == ZIP:
        source = bundled_zip(data, entry)
        return source.file_name, source.text.encode()
    if entry is not None:
        raise Invalid("--entry is for a folder or a zip", hint="Leave it out: a file is called itself.")
    return file.name, data


def _bytes_of(file: Path, cap: int) -> bytes:
    try:
        if not file.is_file():
            what = f"{file} isn't a file" if file.exists() else f"there is no file {file}"
            raise Invalid(what, hint="Give the path of your kernel's source file.")
        with file.open("rb") as opened:
            return opened.read(cap + 1)
    except OSError as error:
        raise Invalid(f"{file} can't be read: {error.strerror}", hint="Check its permissions.") from None
