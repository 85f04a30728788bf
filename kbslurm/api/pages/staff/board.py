"""The page for staff about one board: its times, who has an extension, and the standings that others can't see."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, cast, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from kbslurm.api import archive_folder, parquet
from kbslurm.api.board_json import remarks
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work
from kbslurm.api.hosting.hosting import Hosting
from kbslurm.api.pages.boards.drawn_boards import standing_row
from kbslurm.api.pages.page_files import Table, page_and_files
from kbslurm.api.pages.rendering import ALONE, HEADERS, STYLE, text_of
from kbslurm.api.pages.staff.acts import Unchanged
from kbslurm.api.pages.staff.board_acts import ASKED, PAGES, WORK
from kbslurm.api.pages.staff.board_forms import ACTS, LEVELS, number_of, submission_of
from kbslurm.api.pages.staff.board_forms import text_of as text_in
from kbslurm.api.pages.staff.forms import refused
from kbslurm.api.pages.visitors import Visitors, form_of, to_login
from kbslurm.api.parameters import Name
from kbslurm.domain import access, contest, places, similarity, work_logs
from kbslurm.domain import board as boards
from kbslurm.domain.grade_files import Format, as_file
from kbslurm.errors import Invalid, KbslurmError, NotFound
from kbslurm.store.views import Person

Form = Mapping[str, str]
Whose = Annotated[str, Query(max_length=100)]
AsFile = Annotated[Literal["html", "csv"], Query(alias="format")]
After = Annotated[int, Query(ge=0, le=2**63 - 1)]
GRADES = "grades"
EXTENSIONS, WHO_IS_WHO = ("person", "section", "until"), ("shown_as", "person", "person_id", "team")
SHOWN = 200  # places per GPU type
CHUNK = 1 << 16


def staff_board_page(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @page_and_files(router, "/staff/board/{leaderboard}")
    def board(leaderboard: Name, request: Request) -> Response:
        """One board as hosts see it."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        visitors.staff(person)
        work = at_work(context, person.name, person)
        held = work.held(leaderboard)
        tables = {
            gpu: [
                standing_row(row)
                for row in boards.Ranking(context.store.standings.best(held.name, gpu, live=True))[:SHOWN]
            ]
            for gpu in held.gpus
        }
        times = work.times(held.name)
        named = [] if access.names_people(held.names) else work.who_is_who(held)
        return visitors.page(
            request,
            "staff/board.html",
            person,
            as_files={
                "extensions": Table(columns=EXTENSIONS, rows=times["extensions"]),
                "names": Table(columns=WHO_IS_WHO, rows=named),
            },
            board=held,
            remarks=remarks(held, work.now),
            times=times,
            counts=work.stats(held.name),
            levels=LEVELS,
            versions=[one for one in work.problems() if one["name"] == held.problem_name],
            code=work.code_rule(held.name),
            at_home=lambda text: _at_home(text, held.zone),
            tables=tables,
            shown_names=named,
            deadline=_typed(held.deadline_at, held.zone),
            late_until=_typed(held.late.until, held.zone),
            is_closed=held.closed_at is not None,
            courses=[one["course"] for one in work.courses()],
            formats=[one for one in places.FORMATS if one != "parquet" or parquet.is_there()],
            measuring=[
                gpu for gpu in held.gpus if (final := context.store.finals.open(held.name, gpu)) and not final.is_over
            ],
        )

    @router.get("/staff/board/{leaderboard}/worklog")
    def work_log(
        leaderboard: Name, request: Request, person: Whose = "", form: AsFile = "html", after: After = 0
    ) -> Response:
        """What somebody has submitted to a board, on a page that stands alone, or as CSV. Also for its graders."""
        reader = visitors.who(request)
        if reader is None:
            return to_login(request)
        work = visitors.at_board(reader, leaderboard, "grade")
        if not person.strip():
            raise Invalid("nobody is named", hint="Name a person, or a team as team:NAME.")
        found = work.work_log(leaderboard, person.strip(), after=after)
        if form == "csv":
            name = f"{found['leaderboard']}-worklog.csv"
            named = {**HEADERS, "Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
            return Response(work_logs.as_csv(found), media_type="text/csv", headers=named)
        part, onward = work_logs.part_in_words(found), ""
        if found["next_after"]:
            onward = f"?{urlencode({'person': person.strip(), 'after': found['next_after']})}"
        return HTMLResponse(
            text_of("staff/worklog.html", log=found, part=part, onward=onward, style=STYLE), headers=ALONE
        )

    def graded(request: Request, person: Person, work: Hosting, board: str, form: Form) -> Response:
        """The grades by the scheme in the form: as a page, or as a platform's file."""
        scheme, wanted = form.get("scheme", ""), form.get("format", "table")
        found = work.grades(board, scheme)
        if wanted in get_args(Format):
            text = as_file(found["grades"], cast("Format", wanted), text_in(form, "column") or board)
            named = {"Content-Disposition": f'attachment; filename="{board}-{wanted}.csv"'}
            return Response(text, media_type="text/csv", headers={**HEADERS, **named})
        return visitors.page(request, "staff/grades.html", person, board=board, found=found, scheme=scheme)

    def compared(request: Request, person: Person, work: Hosting, board: str, form: Form) -> Response:
        """Pairs of people with similar sources."""
        others = [name for name in form.get("others", "").replace(",", " ").split() if name][:100]
        percent = number_of(form, "at_least") if text_in(form, "at_least") else 100 * similarity.USUAL
        found = work.similar(board, section=text_in(form, "section") or None, others=others, at_least=percent)
        return visitors.page(request, "staff/similar.html", person, board=board, found=found)

    def pair(request: Request, person: Person, work: Hosting, board: str, form: Form) -> Response:
        """Two sources side by side."""
        found = work.similar_pair(submission_of(form, "left"), submission_of(form, "right"))
        return visitors.page(request, "staff/pair.html", person, board=board, found=found, lines_of=similarity.lines_of)

    def archived(request: Request, person: Person, work: Hosting, board: str, form: Form) -> Response:
        """The board's archive as a zip. It is complete before the first byte is sent."""
        private = form.get("private") == "yes"
        name = f"{board}-private-archive" if private else f"{board}-archive"
        rows = work.archive(board, private=private, place=f"downloaded as {name}.zip")
        with tempfile.TemporaryDirectory(prefix="kbslurm-archive-") as place, closing(rows):
            folder = Path(place, name)
            archive_folder.write(rows, folder, private=private)
            file = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115 - closed once it is sent
            try:
                archive_folder.zipped(folder, name, file)
            except BaseException:
                file.close()
                raise
        size = file.tell()
        told = {"Content-Disposition": f'attachment; filename="{name}.zip"', "Content-Length": str(size)}
        return StreamingResponse(
            _sent(file), media_type="application/zip", headers={**HEADERS, "Cache-Control": "no-store", **told}
        )

    def invited(request: Request, person: Person, work: Hosting, board: str, form: Form) -> Response:
        """New invitations, told on the page that lists them all."""
        count = int(number_of(form, "count"))
        work.make_invites([board], count, newcomers=form.get("newcomers") == "yes")
        return RedirectResponse(f"/staff/board/{board}/entry", status_code=303)

    shows = {GRADES: graded, "similar": compared, "similar-pair": pair, "archive": archived, "invite": invited}

    one_at_a_time = threading.Lock()  # so that both clicks of a double click see what the first one did

    def acted(request: Request, person: Person, work: Hosting, board: str, act: str, form: Form, back: str) -> Response:
        """What it shows, asks or does."""
        if act in shows:
            return shows[act](request, person, work, board, form)
        if act in ASKED and form.get("confirmed") != "yes":
            more: dict[str, Any] = {
                "action": f"/staff/board/{board}/{act}",
                "back": back,
                "asked": ASKED[act](work, board, form),
            }
            return visitors.page(request, "confirm.html", person, **more)
        if act in WORK:
            with one_at_a_time:
                WORK[act](work, board, form)
        elif warnings := ACTS[act](work, board, form):
            return visitors.page(request, "warned.html", person, board=board, warnings=warnings)
        return RedirectResponse("/staff/boards" if act == "delete" else back, status_code=303)

    @router.post("/staff/board/{leaderboard}/{act}")
    async def act(leaderboard: Name, act: str, request: Request) -> Response:
        """Do it as the person who is signed in; the audit log records it."""
        form = await form_of(request)

        def done() -> Response:
            person = visitors.staff(visitors.sender(request, form))
            if act not in (*shows, *ACTS, *WORK):
                raise NotFound("act", act, known=[*shows, *ACTS, *WORK])
            work = at_work(context, person.name, person)
            held = work.held(leaderboard)
            back = f"/staff/board/{held.name}{f'/{PAGES[act]}' if act in PAGES else ''}"
            try:
                return acted(request, person, work, held.name, act, form, back)
            except Unchanged as why:
                return visitors.page(request, "unchanged.html", person, status=409, why=str(why), back=back)
            except KbslurmError as error:
                return refused(context, visitors, request, person, form, error, back)

        return await run_in_threadpool(done)


def _sent(file: BinaryIO) -> Iterator[bytes]:
    with file:
        file.seek(0)
        while chunk := file.read(CHUNK):
            yield chunk


def _typed(at: datetime | None, zone: str) -> str:
    """A moment as one types it, in the board's zone."""
    return "" if at is None else f"{at.astimezone(contest.zone(zone)):%Y-%m-%d %H:%M:%S}"


def _at_home(text: str | None, zone: str) -> str:
    return "–" if text is None else contest.at_home(datetime.fromisoformat(text), zone)
