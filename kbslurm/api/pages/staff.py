"""The page for staff: the queue, places, and what needs attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work
from kbslurm.api.hosting.operations import audit_entry
from kbslurm.api.pages.visitors import Visitors, form_of, to_login
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import Invalid, NotFound
from kbslurm.flow.cancel import cancel
from kbslurm.store.views import Person

Acts = Mapping[str, Callable[[Person, Mapping[str, str]], None]]


def staff_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @router.get("/staff")
    def overview(request: Request) -> Response:
        """Queue, places, and what needs attention."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        visitors.staff(person)
        now = context.clock.now()
        return visitors.page(
            request,
            "staff.html",
            person,
            accepts=context.store.settings.accepts_jobs(),
            queue=context.store.overview.queue(),
            leases=[(line, line.expires_at > now, _places(line.info)) for line in context.store.leases.all()],
            attention=context.store.overview.attention(now=now),
            audit=[audit_entry(event) for event in context.store.events.audit_log(limit=20)],
        )

    def switch(accepting: bool) -> Callable[[Person, Mapping[str, str]], None]:
        def switched(person: Person, form: Mapping[str, str]) -> None:
            at_work(context, person.name, person).set_accepting(accepting)

        return switched

    def end(person: Person, form: Mapping[str, str]) -> None:
        text = form.get("submission", "").strip()
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise Invalid(f"{text[:40]!r} isn't a submission number")
        number, now = SubmissionId(int(text)), context.clock.now()
        cancel(context.store.submissions, number, None, now)
        context.store.events.audit(person.name, "cancel", f"submission:{number}", now=now)

    def ban(person: Person, form: Mapping[str, str]) -> None:
        reason = form.get("reason", "").strip()[:200]
        at_work(context, person.name, person).ban(form.get("person", "").strip()[:100], reason)

    def unban(person: Person, form: Mapping[str, str]) -> None:
        at_work(context, person.name, person).unban(form.get("person", "").strip()[:100])

    acts: Acts = {"pause": switch(False), "resume": switch(True), "cancel": end, "ban": ban, "unban": unban}

    @router.post("/staff/{act}")
    async def act(act: str, request: Request) -> Response:
        """Do it as the person who is signed in; the audit log records it."""
        form = await form_of(request)

        def done() -> None:
            person = visitors.staff(visitors.sender(request, form))
            if act not in acts:
                raise NotFound("act", act, known=list(acts))
            acts[act](person, form)

        await run_in_threadpool(done)
        return RedirectResponse("/staff", status_code=303)


def _places(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the leader reported about each place, in words."""
    places = info.get("places")
    if not isinstance(places, dict):
        return []
    return [(str(name), _in_words(told)) for name, told in places.items()]


def _in_words(told: Any) -> str:
    return ", ".join(f"{key}: {value}" for key, value in told.items()) if isinstance(told, dict) else str(told)
