"""What stands in the editor, and what a form with one, or with files, submits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from kbslurm.api import upload
from kbslurm.domain.source import (
    SUFFIXES,
    ZIP,
    Source,
    bundled,
    bundled_zip,
    checked_source,
    files_of,
    for_board,
)
from kbslurm.errors import Invalid
from kbslurm.store.views import Board, SubmissionView

PART = "part:"  # a file of several in an editor of its own: this and its path


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What the form begins with. `files`: by path, in an editor each. `origin`: what that is, in words. `lost`: the
    files that were chosen and have to be chosen again."""

    files: Mapping[str, str]
    gpu: str
    mode: str
    benchmark: str = ""
    entry: str = ""
    origin: str = ""
    template: str = ""
    number: int | None = None
    lost: tuple[str, ...] = ()


def draft_of_template(board: Board, language: str, *, gpu: str, mode: str) -> Draft:
    """The board's template in this language, or its first one."""
    templates, name = board.problem.templates, f"kernel.{board.problem.lang}"
    language = language if language in templates else next(iter(templates), "")
    text = for_board(templates[language], board.name) if language else ""
    return Draft(files={name: text}, gpu=_gpu(board, gpu), mode=_mode(board, mode), template=language)


def draft_of_submission(board: Board, view: SubmissionView, *, gpu: str, mode: str) -> Draft:
    """The code of a submission, with what was chosen for it."""
    found = files_of(view.file_name, view.source) if view.source else {view.file_name: ""}
    entry = next(iter(found)) if len(found) > 1 else ""
    chosen = gpu or next((run.gpu for run in view.runs), "")
    origin = f"Submission {view.id}" if view.source else f"The code of submission {view.id} was deleted."
    return Draft(
        files=found, gpu=_gpu(board, chosen), mode=_mode(board, mode or view.mode), entry=entry, origin=origin,
        number=view.id,
    )  # fmt: skip


def draft_of_form(board: Board, form: upload.FormFiles) -> Draft:
    """What was sent, as far as an editor can show it."""
    files, lost = written_of(form, f"kernel.{board.problem.lang}")
    fields = form.fields
    return Draft(
        files=files, gpu=_gpu(board, fields.get("gpu", "")), mode=_mode(board, fields.get("mode", "")),
        benchmark=fields.get("benchmark", ""), entry=fields.get("entry", ""), lost=lost,
    )  # fmt: skip


def written_of(form: upload.FormFiles, name: str) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """What was sent by path, as far as an editor can show it: a single file that was chosen is in it from now on. And
    the files that have to be chosen again. `name`: of what has none."""
    fields = form.fields
    written = {path.removeprefix(PART): text_of_field(text) for path, text in fields.items() if path.startswith(PART)}
    files = written or {fields.get("name", "") or name: text_of_field(fields.get("source", ""))}
    lost = tuple(form.files)
    if len(lost) == 1 and PurePosixPath(lost[0]).suffix.lower() in SUFFIXES:
        try:
            files, lost = {lost[0]: form.files[lost[0]].decode()}, ()
        except UnicodeDecodeError:
            pass
    return files, lost


def _gpu(board: Board, asked: str) -> str:
    """The board's GPU type of that name, or its first one."""
    return next((gpu for gpu in board.gpus if gpu.lower() == asked.lower()), next(iter(board.gpus), ""))


def _mode(board: Board, asked: str) -> str:
    """That mode, or the first one that the problem has: whoever doesn't choose doesn't rank by accident."""
    modes = board.problem.modes
    return asked if asked in modes else "test" if "test" in modes else modes[0]


def source_of(form: upload.FormFiles) -> Source:
    """What was chosen, or else what was written, as a submission; or Invalid."""
    fields = form.fields
    entry = fields.get("entry", "").strip() or None
    if len(form.files) > 1:
        return bundled(form.files, entry)
    for name, data in form.files.items():
        return bundled_zip(data, entry) if name.lower().endswith(ZIP) else checked_source(name, data)
    written = {name.removeprefix(PART): text_of_field(text) for name, text in fields.items() if name.startswith(PART)}
    if written:
        return bundled({name: text.encode() for name, text in written.items()}, entry)
    text = text_of_field(fields.get("source", ""))
    if not text.strip():
        raise Invalid(
            "no file was chosen, and nothing is written" if "source" in fields else "no file was chosen",
            hint="Choose one file, several, or a zip of them.",
        )
    return checked_source(fields.get("name", "").strip(), text.encode())


def text_of_field(sent: str) -> str:
    """A field's text as it was in the file: browsers send other ends of lines."""
    return sent.replace("\r\n", "\n")
