"""The page and the form to submit from: an editor, or one file, several, or a zip of them; whole without a script."""

from __future__ import annotations

from threading import Lock
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import may_submit, refusals, upload, waiting
from kbslurm.api.board_json import remarks
from kbslurm.api.context import Context
from kbslurm.api.lookup import seen_board
from kbslurm.api.pages.countdown import left
from kbslurm.api.pages.problems.editing import Draft, draft_of_form, draft_of_submission, draft_of_template, source_of
from kbslurm.api.pages.visitors import Visitors, expired_form, to_login
from kbslurm.api.parameters import Name
from kbslurm.api.routes.submitting import mode_named
from kbslurm.domain import contest
from kbslurm.domain.run import SubmissionId
from kbslurm.domain.source import FILES_CAP, SOURCE_CAP, Source
from kbslurm.errors import Invalid, KbslurmError, NotFound, Refused
from kbslurm.flow.submit import accept
from kbslurm.store.views import Board, Person
from kbslurm_eval.shared.wire import Mode

VIA = "page"
LATEST = 5  # among these is what a second click would submit again
MODES: tuple[tuple[str, str, str], ...] = (
    ("leaderboard", "Ranked", "everything, hidden cases too; counts in the standings"),
    ("test", "Test", "is it correct?"),
    ("benchmark", "Benchmark", "correct, and how fast; not ranked"),
    ("profile", "Profile", "where the time goes; not ranked"),
)
From = Annotated[int | None, Query(alias="from", ge=0, le=2**63 - 1)]
Choice = Annotated[str, Query(max_length=contest.NAME_CAP)]


def submitting_pages(router: APIRouter, context: Context, visitors: Visitors, histories: waiting.Histories) -> None:
    one_at_a_time = Lock()  # a second click may arrive while the first is being stored

    def shown(
        request: Request, person: Person, board: Board, draft: Draft, why: str = "", status: int = 200
    ) -> Response:
        now = context.clock.now()
        outlook = may_submit.outlook(context.store, person.id, board.name, now)
        gpus = [(gpu, waiting.before_submitting(context, histories, gpu)) for gpu in board.gpus]
        errors = [queue["error"] for _, queue in gpus if queue["error"]]
        return visitors.page(
            request,
            "problems/submit.html",
            person,
            board=board,
            problem=board.problem,
            draft=draft,
            why=why,
            outlook=outlook,
            refused="" if outlook.refused is None else refusals.sentence(outlook.refused),
            spent={mode: refusals.sentence(error) for mode, error in outlook.spent.items()},
            queue=gpus,
            down=next((one for one in errors if errors.count(one) > 1), ""),  # once is enough
            size_cap=SOURCE_CAP,
            files_cap=FILES_CAP,
            closes="" if outlook.deadline_at is None else contest.at_home(outlook.deadline_at, board.zone),
            left=left(outlook.deadline_at, now),
            remarks=remarks(board, now),
            modes=[row for row in MODES if row[0] in board.problem.modes],
            status=status,
        )

    @router.get("/problem/{leaderboard}/submit")
    def form(
        leaderboard: Name, request: Request, before: From = None, template: Choice = "", gpu: Choice = "",
        mode: Choice = "",
    ) -> Response:  # fmt: skip
        """The form, with a template, or with the code of a submission of one's own: to change it, or to submit it
        again."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        board = seen_board(context, leaderboard, person)
        if before is None:
            draft = draft_of_template(board, template, gpu=gpu, mode=mode)
        else:
            draft = draft_of_submission(board, visitors.own(person, before), gpu=gpu, mode=mode)
        return shown(request, person, board, draft)

    @router.post("/problem/{leaderboard}/submit")
    async def submit(leaderboard: Name, request: Request) -> Response:
        """Submit what was chosen or written, and lead to the submission's page. The same again, while it is still open,
        leads to the same page. A refusal comes back with what was written."""
        form = await upload.read_form(request)

        def submitted() -> SubmissionId | tuple[KbslurmError, Response]:
            writer = expired_form(visitors, request, form.fields)
            person = writer or visitors.sender(request, form.fields)
            board = seen_board(context, leaderboard, person)
            try:
                if writer is not None:
                    raise Refused("this form has expired, since you have signed in again", hint="Submit it once more.")
                return _submitted(person, board, form)
            except (Invalid, NotFound, Refused) as error:
                if "text/html" not in request.headers.get("accept", ""):
                    raise
                draft, why = draft_of_form(board, form), refusals.sentence(error)
                return error, shown(request, person, board, draft, why, error.http_status)

        found = await run_in_threadpool(submitted)
        if not isinstance(found, tuple):
            return RedirectResponse(f"/s/{found}", status_code=303)
        error, page = found
        told = await refusals.of_our_error(request, error)  # counted and marked like every other refusal
        for name in (refusals.KIND, "Retry-After", "Cache-Control"):
            if name in told.headers:
                page.headers[name] = told.headers[name]
        return page

    def _submitted(person: Person, board: Board, form: upload.FormFiles) -> SubmissionId:
        source, mode = source_of(form), mode_named(form.fields.get("mode", ""))
        gpu = form.fields.get("gpu", "")
        benchmark = _benchmark(form.fields.get("benchmark", "")) if mode == "profile" else None
        with context.metrics.submitting(mode), one_at_a_time:
            before = _still_open(context, person, board, source, mode, gpu)
            if before is not None:
                return before
            receipt = accept(
                context.store.intake, person.id, board.name, source.file_name, source.text, mode,
                [gpu] if gpu else [], context.clock.now(), via=VIA, benchmark=benchmark,
            )  # fmt: skip
        return receipt.submission_id


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
