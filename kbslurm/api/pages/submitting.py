"""The form on a problem's page: one file, several, or a zip of them, without a script."""

from __future__ import annotations

from threading import Lock

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import upload
from kbslurm.api.context import Context
from kbslurm.api.lookup import seen_board
from kbslurm.api.pages.visitors import Visitors
from kbslurm.api.parameters import Name
from kbslurm.api.routes.submitting import mode_named
from kbslurm.domain.run import SubmissionId
from kbslurm.domain.source import ZIP, Source, bundled, bundled_zip, checked_source
from kbslurm.errors import Invalid
from kbslurm.flow.submit import accept
from kbslurm.store.views import Board, Person
from kbslurm_eval.shared.wire import Mode

VIA = "page"
LATEST = 5  # among these is what a second click would submit again


def submitting_page(router: APIRouter, context: Context, visitors: Visitors) -> None:
    one_at_a_time = Lock()  # a second click may arrive while the first is being stored

    @router.post("/problem/{leaderboard}/submit")
    async def submit(leaderboard: Name, request: Request) -> Response:
        """Submit what was chosen, and lead to the submission's page. The same again, while it is still open, leads to
        the same page."""
        form = await upload.read_form(request)

        def submitted() -> SubmissionId:
            person = visitors.sender(request, form.fields)
            board = seen_board(context, leaderboard, person)
            source, mode = source_of(form), mode_named(form.fields.get("mode", ""))
            gpu = form.fields.get("gpu", "")
            benchmark = _benchmark(form.fields.get("benchmark", ""))
            with context.metrics.submitting(mode), one_at_a_time:
                before = _still_open(context, person, board, source, mode, gpu)
                if before is not None:
                    return before
                receipt = accept(
                    context.store.intake, person.id, board.name, source.file_name, source.text, mode,
                    [gpu] if gpu else [], context.clock.now(), via=VIA, benchmark=benchmark,
                )  # fmt: skip
            return receipt.submission_id

        number = await run_in_threadpool(submitted)
        return RedirectResponse(f"/s/{number}", status_code=303)


def source_of(form: upload.FormFiles) -> Source:
    """What was chosen as a submission, or Invalid."""
    entry = form.fields.get("entry", "").strip() or None
    if not form.files:
        raise Invalid("no file was chosen", hint="Choose one file, several, or a zip of them.")
    if len(form.files) > 1:
        return bundled(form.files, entry)
    ((name, data),) = form.files.items()
    if name.lower().endswith(ZIP):
        return bundled_zip(data, entry)
    return checked_source(name, data)


def _benchmark(text: str) -> int | None:
    if not text.strip():
        return None
    if not (text.strip().isascii() and text.strip().isdigit() and len(text.strip()) <= 5):
        raise Invalid(f"{text[:40]!r} isn't the number of a benchmark", hint="They count from 0.")
    return int(text)


def _still_open(
    context: Context, person: Person, board: Board, source: Source, mode: Mode, gpu: str
) -> SubmissionId | None:
    for view in context.store.submissions.newest(person=person.id, board=board.name, limit=LATEST):
        same = (view.mode, view.file_name) == (mode, source.file_name) and not view.is_done
        gpus = {run.gpu.lower() for run in view.runs}
        if same and (not gpu or gpus == {gpu.lower()}) and context.store.submissions.get(view.id).source == source.text:
            return view.id
    return None
