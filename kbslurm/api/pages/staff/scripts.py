"""The staff's pages of scripts that run on a GPU without a board: a form with what is left of the day, the scripts of
the last days, and one of them to its end."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import refusals, upload
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work
from kbslurm.api.hosting.hosting import Hosting
from kbslurm.api.hosting.scripts import LISTED_DAYS
from kbslurm.api.pages.page_files import Table, most, page_and_files
from kbslurm.api.pages.problems.editing import text_of_field, written_of
from kbslurm.api.pages.visitors import Offset, Visitors, expired_form, form_of, to_login
from kbslurm.domain import contest
from kbslurm.domain.amounts import span
from kbslurm.domain.scripts import DEFAULT_S, MOST_S, checked_script
from kbslurm.domain.source import SOURCE_CAP
from kbslurm.errors import Invalid, KbslurmError, Misconfigured, NotFound, Refused
from kbslurm.store.views import Person

Script = Annotated[int, Path(ge=0, le=2**63 - 1)]
Again = Annotated[int | None, Query(ge=0, le=2**63 - 1)]
Whose = Annotated[str, Query(max_length=8)]
Form = Mapping[str, str]
SHOWN = 30
LATEST = 5  # among these is what a second click would run again
FILE_NAME, MINE = "script.py", "mine"
COLUMNS = (
    "script", "by", "file_name", "gpu", "place", "node", "timeout_s", "at", "state", "verdict", "exit_status", "reason",
    "took_s",
)  # fmt: skip


def staff_script_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    one_at_a_time = Lock()  # a second click may arrive while the first is being stored

    def shown(
        request: Request,
        person: Person,
        draft: Mapping[str, Any],
        *,
        whose: str = "",
        start: int = 0,
        why: str = "",
        status: int = 200,
    ) -> Response:
        work = at_work(context, person.name, person)
        mine = whose == MINE
        rows = work.scripts(mine=mine, limit=most(request, SHOWN + 1), offset=start)
        chosen = f"whose={MINE}&" if mine else ""
        return visitors.page(
            request,
            "staff/run.html",
            person,
            status=status,
            as_files={"scripts": Table(columns=COLUMNS, rows=rows)},
            last=context.store.events.last(),
            outlook=work.script_outlook(),
            rows=[{**row, "words": in_words(row)} for row in rows[:SHOWN]],
            draft=draft,
            mine=mine,
            is_open=any(not row["done"] for row in rows[:SHOWN]),
            days=LISTED_DAYS,
            most_s=MOST_S,
            size_cap=SOURCE_CAP,
            why=why,
            newer=f"?{chosen}from={max(0, start - SHOWN)}" if start else "",
            older=f"?{chosen}from={start + SHOWN}" if len(rows) > SHOWN else "",
        )

    @page_and_files(router, "/staff/run")
    def scripts(request: Request, again: Again = None, whose: Whose = "", start: Offset = 0) -> Response:
        """A form to run a script, empty or with an earlier one in it, and the scripts of the last days."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        visitors.staff(person)
        draft = drafted()
        if again is not None:
            work = at_work(context, person.name, person)
            (name, text), told = work.script_source(again), work.script(again)
            draft = drafted(name, text, gpu=told["gpu"], timeout=str(told["timeout_s"]))
        return shown(request, person, draft, whose=whose, start=start)

    @router.post("/staff/run")
    async def run(request: Request) -> Response:
        """Run what was chosen or written, and lead to its page. The same again, while it is still open, leads to the
        same page. A refusal comes back with what was written."""
        form = await upload.read_form(request)

        def ordered() -> int | tuple[KbslurmError, Response]:
            writer = expired_form(visitors, request, form.fields)
            person = visitors.staff(writer or visitors.sender(request, form.fields))
            try:
                if writer is not None:
                    raise Refused("this form has expired, since you have signed in again", hint="Send it once more.")
                with one_at_a_time:
                    return _ordered(at_work(context, person.name, person), form)
            except (Invalid, NotFound, Refused, Misconfigured) as error:
                if "text/html" not in request.headers.get("accept", ""):
                    raise
                files, lost = written_of(form, FILE_NAME)
                ((name, text), *_) = files.items()
                fields = {key: form.fields.get(key, "") for key in ("gpu", "timeout", "place")}
                draft = drafted(name, text, lost=lost, **fields)
                return error, shown(
                    request, person, draft, why=refusals.public_sentence(error), status=error.http_status
                )

        found = await run_in_threadpool(ordered)
        if not isinstance(found, tuple):
            return RedirectResponse(f"/staff/run/{found}", status_code=303)
        error, page = found
        told = await refusals.of_our_error(request, error)  # counted and marked like every other refusal
        for name in (refusals.KIND, "Retry-After"):
            if name in told.headers:
                page.headers[name] = told.headers[name]
        return page

    @router.get("/staff/run/{script}")
    def script(script: Script, request: Request) -> Response:
        """One script: how it stands and, once it has ended, what it wrote."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        visitors.staff(person)
        work = at_work(context, person.name, person)
        last, told = context.store.events.last(), work.script(script)
        try:
            files = dict([work.script_source(script)])
        except NotFound:
            files = {}
        return visitors.page(
            request, "staff/script.html", person, last=last, told=told, words=in_words(told), kind=kind_of(told),
            files=files,
        )  # fmt: skip

    @router.post("/staff/run/{script}/cancel")
    async def cancel(script: Script, request: Request) -> Response:
        """Cancel a script that is still open."""
        form = await form_of(request)

        def cancelled() -> Response:
            person = visitors.staff(visitors.sender(request, form))
            work, back = at_work(context, person.name, person), f"/staff/run/{script}"
            if work.script(script)["done"]:
                why = f"Script {script} has ended already, so there is nothing to cancel."
                return visitors.page(request, "unchanged.html", person, status=409, why=why, back=back)
            work.cancel_script(script)
            return RedirectResponse(back, status_code=303)

        return await run_in_threadpool(cancelled)


def drafted(
    name: str = FILE_NAME,
    text: str = "",
    *,
    gpu: str = "",
    timeout: str = str(DEFAULT_S),
    place: str = "",
    lost: tuple[str, ...] = (),
) -> Mapping[str, Any]:
    """What the form begins with. `lost`: the files that were chosen and have to be chosen again."""
    return {"name": name, "text": text, "gpu": gpu, "timeout": timeout, "place": place, "lost": lost}


def in_words(told: Mapping[str, Any]) -> str:
    """How a script stands, as the command says it."""
    took = "" if told["took_s"] is None else f" after {span(told['took_s'])}"
    if told["done"]:
        return f"{told['reason'] or told['state']}{took}"
    where = f" at {told['place']}" if told["place"] and told["state"] != "queued" else ""
    return f"{told['state']}{where}"


def kind_of(told: Mapping[str, Any]) -> str:
    """By what its outcome is coloured; its words say the same."""
    if not told["done"]:
        return "busy"
    if told["verdict"] in (None, "infrastructure"):
        return "warn"
    return "good" if told["verdict"] == "passed" else "bad"


def _ordered(work: Hosting, form: upload.FormFiles) -> int:
    name, data = _script_in(form)
    fields = form.fields
    gpu, place, timeout = fields.get("gpu", "").strip(), fields.get("place", "").strip(), _seconds(form.fields)
    if not gpu:
        raise Invalid("no GPU type was chosen", hint="Choose one.")
    digest = checked_script(name, data).sha256
    for row in work.scripts(mine=True, limit=LATEST):
        told = (row["sha256"], row["gpu"].lower(), row["timeout_s"], (row["asked_place"] or "").lower())
        if not row["done"] and told == (digest, gpu.lower(), timeout, place.lower()):
            return int(row["script"])
    return int(work.run_script(name, data, gpu, timeout, place or None)["script"])


def _script_in(form: upload.FormFiles) -> tuple[str, bytes]:
    if len(form.files) > 1:
        raise Invalid(f"a script is one file, not {len(form.files)}", hint="Choose one .py file.")
    for name, data in form.files.items():
        return name, data
    text = text_of_field(form.fields.get("source", ""))
    if not text.strip():
        raise Invalid("no file was chosen, and nothing is written", hint="Choose one .py file, or write one.")
    return form.fields.get("name", "").strip(), text.encode()


def _seconds(fields: Form) -> int:
    text = fields.get("timeout", "").strip() or str(DEFAULT_S)
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Invalid(f"{contest.shown(text)} isn't a number of seconds", hint=f"Give one from 1 to {MOST_S}.")
    return int(text)
