"""The staff's pages of an external scanner's flags, which are no verdicts: on what ranks on a board and on one
submission, also for the board's graders, and on code that isn't stored."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import refusals, upload
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work
from kbslurm.api.hosting.triage import NOTE, told_scan
from kbslurm.api.pages.page_files import Table, most, page_and_files
from kbslurm.api.pages.problems.editing import source_of, written_of
from kbslurm.api.pages.visitors import Offset, Visitors, expired_form, to_login
from kbslurm.api.parameters import Name, Number
from kbslurm.domain import contest
from kbslurm.domain.source import SOURCE_CAP, Source, files_of
from kbslurm.errors import Invalid, KbslurmError, Misconfigured, NotAccepting, NotFound, Refused
from kbslurm.kernelguard.scans import Scan
from kbslurm.store.views import Person

Words = Annotated[str, Query(max_length=contest.NAME_CAP)]
SHOWN = 50  # of a board at once, which are then scanned
AGAIN_MS = 1500
WAIT_S = 45.0  # a scan that is running, and its own
FILE_NAME = "kernel.py"
ROWS = (
    "submission",
    "board",
    "person",
    "file_name",
    "submitted_at",
    "best_on",
    "state",
    "opinion",
    "flags",
    "rules",
    "why",
)
FLAGS = ("rule", "severity", "evidence")


def staff_triage_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    def shown(
        request: Request,
        person: Person,
        form: upload.FormFiles | None = None,
        *,
        found: Mapping[str, Any] | None = None,
        why: str = "",
        status: int = 200,
    ) -> Response:
        files, lost = ({FILE_NAME: ""}, ()) if form is None else written_of(form, FILE_NAME)
        ((name, text), *_) = files.items()
        return visitors.page(
            request,
            "staff/triage.html",
            person,
            status=status,
            note=NOTE,
            missing=at_work(context, person.name, person).scanner_missing(),
            boards=context.store.boards.names(),
            found=found,
            why=why,
            name=name,
            text=text,
            lost=lost,
            size_cap=SOURCE_CAP,
        )

    @router.get("/staff/triage")
    def triage(request: Request, board: Words = "", submission: Words = "") -> Response:
        """Where to find flags, and a form to scan code that isn't stored."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        visitors.staff(person)
        if board.strip():
            held = at_work(context, person.name, person).held(board.strip())
            return RedirectResponse(f"/staff/board/{held.name}/triage", status_code=303)
        number = submission.strip()
        if number:
            if not (number.isascii() and number.isdecimal() and len(number) < 19):
                raise Invalid(f"{contest.shown(number)} isn't a submission number")
            return RedirectResponse(f"/staff/submissions/{int(number)}/triage", status_code=303)
        return shown(request, person)

    @router.post("/staff/triage")
    async def scan(request: Request) -> Response:
        """The flags on the code in the form. It waits where it holds up nobody: for the scanner, not for its turn."""
        form = await upload.read_form(request)

        def begun() -> tuple[Person, Source | None, Future[Scan] | KbslurmError]:
            writer = expired_form(visitors, request, form.fields)
            person = visitors.staff(writer or visitors.sender(request, form.fields))
            try:
                if writer is not None:
                    raise Refused("this form has expired, since you have signed in again", hint="Send it once more.")
                source = source_of(form)
                return person, source, at_work(context, person.name, person).triage_text(context.scans, source)
            except (Invalid, NotFound, Refused, Misconfigured) as error:
                return person, None, error

        person, source, begins = await run_in_threadpool(begun)
        if isinstance(begins, KbslurmError):
            return await refused(request, person, form, begins)
        assert source is not None
        scanned = asyncio.wrap_future(begins)
        if not (await asyncio.wait({scanned}, timeout=WAIT_S))[0]:
            return await refused(
                request, person, form, NotAccepting("it still waits for its turn", hint="Send it again in a minute.")
            )
        told = told_scan(scanned.result())
        return await run_in_threadpool(shown, request, person, form, found={**told, "file_name": source.file_name})

    async def refused(request: Request, person: Person, form: upload.FormFiles, error: KbslurmError) -> Response:
        """What was written, with the reason; where there is no scanner, the page that says so."""
        if isinstance(error, Misconfigured):
            return await run_in_threadpool(shown, request, person, form)
        if "text/html" not in request.headers.get("accept", ""):
            raise error
        why = refusals.sentence(error)
        page = await run_in_threadpool(shown, request, person, form, why=why, status=error.http_status)
        told = await refusals.of_our_error(request, error)
        page.headers[refusals.KIND] = told.headers[refusals.KIND]
        return page

    @page_and_files(router, "/staff/board/{leaderboard}/triage")
    def of_board(leaderboard: Name, request: Request, start: Offset = 0) -> Response:
        """The flags on what ranks on a board. What wasn't scanned yet is, and the page shows it as it comes."""
        reader = visitors.who(request)
        if reader is None:
            return to_login(request)
        work = visitors.at_board(reader, leaderboard, "grade")
        held = work.held(leaderboard)
        rows = work.triage(context.scans, held.name, begin=SHOWN, limit=most(request, SHOWN + 1), offset=start)
        plain = [{**row, "flags": len(row["flags"]) if row["state"] == "scanned" else None} for row in rows]
        missing = work.scanner_missing()
        return visitors.page(
            request,
            "staff/board_triage.html",
            reader,
            as_files={"flags": Table(columns=ROWS, rows=plain)},
            board=held,
            note=NOTE,
            missing=missing,
            rows=rows[:SHOWN],
            waits=0 if missing else sum(row["state"] == "waiting" for row in rows[:SHOWN]),
            again_ms=AGAIN_MS,
            newer=f"?from={max(0, start - SHOWN)}" if start else "",
            older=f"?from={start + SHOWN}" if len(rows) > SHOWN else "",
        )

    @page_and_files(router, "/staff/submissions/{submission_id}/triage")
    def of_submission(submission_id: Number, request: Request) -> Response:
        """The flags on anyone's submission."""
        reader = visitors.who(request)
        if reader is None:
            return to_login(request)
        work, view = visitors.at_submission(reader, submission_id)
        found = work.triage_submission(context.scans, view.id)
        missing, board = work.scanner_missing(), context.store.boards.find(view.board, counted=False)
        return visitors.page(
            request,
            "staff/submission_triage.html",
            reader,
            as_files={"flags": Table(columns=FLAGS, rows=found["flags"])},
            found=found,
            note=NOTE,
            missing=missing,
            waits=not missing and found["state"] == "waiting",
            again_ms=AGAIN_MS,
            is_there=board is not None and board.id == view.board_id,
            files=files_of(view.file_name, view.source or ""),
        )
