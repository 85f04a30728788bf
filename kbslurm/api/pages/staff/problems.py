"""The staff's page of problems: every version, and a form for a new one or a new version, tried as the command tries
it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import upload
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work
from kbslurm.api.hosting.hosting import Hosting
from kbslurm.api.pages.page_files import Table, page_and_files
from kbslurm.api.pages.visitors import Visitors, to_login
from kbslurm.api.refusals import KIND, public_sentence
from kbslurm.domain import contest
from kbslurm.domain.amounts import ordinal
from kbslurm.domain.problem import Problem
from kbslurm.errors import Invalid, Misconfigured, NotFound, Refused
from kbslurm.problems import upload as problem_upload
from kbslurm.store.views import Person

COLUMNS = ("name", "id", "created_at", "digest", "inputs", "boards")


@dataclass(frozen=True)
class _Uploaded:
    problem: Problem


def staff_problem_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    one_at_a_time = threading.Lock()  # trying a problem's inputs takes a core, and a second click is the same file

    def shown(
        request: Request,
        person: Person,
        *,
        added: Mapping[str, Any] | None = None,
        why: str = "",
        form: Mapping[str, str] | None = None,
        status: int = 200,
    ) -> Response:
        rows = _rows(at_work(context, person.name, person), context)
        typed = form or {}
        return visitors.page(
            request,
            "staff/problems.html",
            person,
            status=status,
            as_files={"problems": Table(columns=COLUMNS, rows=rows)},
            rows=rows,
            added=added if added is None else {**added, "nth": _nth(rows, added)},
            boards=[] if added is None else _boards_of(context, added),
            why=why,
            name=typed.get("name", ""),
            entry=typed.get("entry", ""),
        )

    @page_and_files(router, "/staff/problems")
    def problems(request: Request) -> Response:
        """Every version of every problem, and the form for another."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        return shown(request, visitors.staff(person))

    @router.post("/staff/problems")
    async def add(request: Request) -> Response:
        """Add a problem, or a new version of it, from a zip of its folder or one file; its inputs are tried before."""
        form = await upload.read_form(request)

        def added() -> Response:
            person = visitors.staff(visitors.sender(request, form.fields))
            try:
                with one_at_a_time:
                    return shown(request, person, added=_added(at_work(context, person.name, person), form))
            except (Invalid, NotFound, Refused) as error:
                if "text/html" not in request.headers.get("accept", ""):
                    raise
                context.metrics.met(error)
                told = public_sentence(error)
                page = shown(request, person, why=told, form=form.fields, status=error.http_status)
                page.headers[KIND] = error.kind
                return page

        return await run_in_threadpool(added)


def _added(work: Hosting, form: upload.FormFiles) -> Mapping[str, Any]:
    if len(form.files) != 1:
        raise Invalid("no file was chosen", hint="Choose a zip of the problem's folder, or its one file.")
    ((file_name, data),) = form.files.items()
    name = form.fields.get("name", "").strip()
    contest.board_name(name)
    entry = form.fields.get("entry", "").strip()[: contest.NAME_CAP] or None
    try:
        loaded = problem_upload.loaded(file_name, data, name=name, entry=entry)
        return work.add_problem(_Uploaded(loaded))
    except Misconfigured as error:
        # What is wrong in a problem's files is an operator's to mend on the command line, and whoever sends them here.
        raise Invalid(error.message, hint=error.hint) from None


def _rows(work: Hosting, context: Context) -> Sequence[Mapping[str, Any]]:
    """Every version, the newest of each problem first, with the boards on which it is live."""
    live: dict[int, list[str]] = {}
    for board in context.store.boards.all(counted=False):
        live.setdefault(board.problem_version_id, []).append(board.name)
    rows = [{**one, "boards": sorted(live.get(one["id"], []))} for one in work.problems()]
    return sorted(rows, key=lambda one: (one["name"].lower(), -one["id"]))


def _nth(rows: Sequence[Mapping[str, Any]], added: Mapping[str, Any]) -> str:
    """Which of the problem's own versions it is: they are numbered over all problems."""
    nth = sum(one["name"] == added["problem"] and one["id"] <= added["version"] for one in rows)
    return "first" if nth == 1 else ordinal(nth)


def _boards_of(context: Context, added: Mapping[str, Any]) -> list[str]:
    """The boards on other versions of the problem: a host may want this one to be live there."""
    return sorted(
        one.name
        for one in context.store.boards.all(counted=False)
        if one.problem_name == added["problem"] and one.problem_version_id != added["version"]
    )
