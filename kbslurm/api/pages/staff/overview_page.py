"""The first page for staff: what needs attention, the queue, and the places; and what their forms do."""

from __future__ import annotations

import threading
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work
from kbslurm.api.pages.page_files import Table, page_and_files
from kbslurm.api.pages.staff import service as staff_service
from kbslurm.api.pages.staff.acts import StaffActs, Unchanged
from kbslurm.api.pages.staff.audit import COLUMNS as AUDIT
from kbslurm.api.pages.staff.forms import refused, then_of
from kbslurm.api.pages.visitors import Visitors, form_of, to_login
from kbslurm.domain import access
from kbslurm.errors import KbslurmError, NotFound
from kbslurm.store.views import Person

SHOWN = 10  # lines of the audit log
ATTENTION = ("kind", "text", "since", "advice")
QUEUE = ("gpu", "queued", "launching", "running", "slots", "oldest_at")
USAGE, BUDGETS = ("name", "gpu_s", "money"), ("of", "spent", "budget")
WARM_RULES = ("place", "gpu", "open", "most", "held_s", "idle_share", "why")
WORKERS = ("worker", "place", "gpu", "state", "node", "served", "ends_in_s", "leaving")


def staff_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @page_and_files(router, "/staff")
    def overview(request: Request) -> Response:
        """What needs attention, the queue, and the places; to helpers their boards."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        if not access.may_see_staff_page(person):
            return helpers(request, person)
        store, work = context.store, at_work(context, person.name, person)
        status = work.service_status()
        places = staff_service.places(status, work.now)
        attention, queue, audit = (
            staff_service.to_attend(context, work.now), staff_service.queue(status), work.audit_named(limit=SHOWN)
        )  # fmt: skip
        return visitors.page(
            request,
            "staff/overview.html",
            person,
            as_files={
                "attention": Table(columns=ATTENTION, rows=map(vars, attention)),
                "queue": Table(columns=QUEUE, rows=queue),
                "actions": Table(columns=AUDIT, rows=audit),
            },
            last=store.events.last(),
            accepts=store.settings.accepts_jobs(),
            daemon=status.daemon,
            troubles=staff_service.troubles(status, places),
            attention=attention,
            questions=store.questions.open(None),
            queue=queue,
            waiting=status.waiting,
            places=places,
            currency=status.overflow.get("currency", ""),
            boards=staff_service.open_boards(store.boards.all(counted=False), work.now),
            audit=audit,
        )

    def helpers(request: Request, person: Person) -> Response:
        """The boards on which somebody who isn't staff has a role, and nothing else."""
        roles = context.store.roster.roles_of(person.id)
        if not roles:
            visitors.staff(person)
        graded = frozenset(one for one, role in roles.items() if access.may_on_board(person, role, "grade"))
        boards: list[dict[str, Any]] = [
            {"name": one.name, "role": roles[one.id], "grades": one.id in graded}
            for one in context.store.boards.all(counted=False)
            if one.id in roles
        ]
        if not boards:
            visitors.staff(person)
        return visitors.page(
            request,
            "staff/helper.html",
            person,
            boards=boards,
            grades=bool(graded),
            questions=context.store.questions.open(graded) if graded else 0,
        )

    @page_and_files(router, "/staff/places")
    def places(request: Request) -> Response:
        """Where runs go, what each place has, costs, and is wanting; warm workers."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        visitors.staff(person)
        work = at_work(context, person.name, person)
        status = work.service_status()
        cards = staff_service.places(status, work.now)
        overflow, usage = staff_service.overflow(status), work.usage(by="place")
        budgets = [dict(zip(BUDGETS, row, strict=True)) for row in overflow.get("budgets", ())]
        return visitors.page(
            request,
            "staff/places.html",
            person,
            as_files={
                "usage": Table(columns=USAGE, rows=usage["rows"]),
                "budgets": Table(columns=BUDGETS, rows=budgets),
                "warm-rules": Table(columns=WARM_RULES, rows=(status.warm or {}).get("rules", ())),
                "warm-workers": Table(columns=WORKERS, rows=(status.warm or {}).get("workers", ())),
            },
            last=context.store.events.last(),
            daemon=status.daemon,
            troubles=staff_service.troubles(status, cards),
            places=cards,
            overflow=overflow,
            usage=usage,
            waiting=status.waiting,
            warm=status.warm,
        )

    done_by = StaffActs(context)
    acts, asked = done_by.acts, done_by.asked
    one_at_a_time = threading.Lock()  # so that both clicks of a double click see what the first one did

    @router.post("/staff/{act}")
    async def act(act: str, request: Request) -> Response:
        """Do it as the person who is signed in, once they have confirmed it; the audit log records it."""
        form = await form_of(request)

        def done() -> Response:
            person = visitors.staff(visitors.sender(request, form))
            if act not in acts:
                raise NotFound("act", act, known=list(acts))
            back = then_of(form, "/staff")
            try:
                if act in asked and form.get("confirmed") != "yes":
                    question = asked[act](person, form)
                    more: dict[str, Any] = {"action": f"/staff/{act}", "back": back, "asked": question}
                    return visitors.page(request, "confirm.html", person, **more)
                with one_at_a_time:
                    acts[act](person, form)
            except Unchanged as why:
                return visitors.page(request, "unchanged.html", person, status=409, why=str(why), back=back)
            except KbslurmError as error:
                return refused(context, visitors, request, person, form, error, "/staff")
            return RedirectResponse(back, status_code=303)

        return await run_in_threadpool(done)
