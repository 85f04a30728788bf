"""The page for staff: the queue, places, and what needs attention."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work
from kbslurm.api.hosting.operations import audit_entry
from kbslurm.api.pages.rendering import isolated, when
from kbslurm.api.pages.visitors import Visitors, form_of, to_login
from kbslurm.domain import access, contest
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import Invalid, NotFound
from kbslurm.flow.cancel import cancel
from kbslurm.store.views import Person, SubmissionView

Form = Mapping[str, str]
Acts = Mapping[str, Callable[[Person, Form], None]]
Questions = Mapping[str, Callable[[Person, Form], "Question"]]


class Unchanged(Exception):
    """It is so already, by a second click or by somebody else: the page with the form was old. Says what is so."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked before an act that can't be undone. `form` is what confirms it, about the very thing shown."""

    heading: str
    lines: Sequence[str]
    yes: str
    form: Form


def staff_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @router.get("/staff")
    def overview(request: Request) -> Response:
        """Queue, places, and what needs attention."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        visitors.staff(person)
        now, last = context.clock.now(), context.store.events.last()
        return visitors.page(
            request,
            "staff.html",
            person,
            last=last,
            accepts=context.store.settings.accepts_jobs(),
            queue=context.store.overview.queue(),
            leases=[(line, line.expires_at > now, _places(line.info)) for line in context.store.leases.all()],
            attention=context.store.overview.attention(now=now),
            boards=context.store.boards.names(),
            roles=[role for role in get_args(access.Role) if access.may_give(person, role)],
            audit=[audit_entry(event) for event in context.store.events.audit_log(limit=20)],
        )

    def switch(accepting: bool) -> Callable[[Person, Form], None]:
        def switched(person: Person, form: Form) -> None:
            if context.store.settings.accepts_jobs() is accepting:
                raise Unchanged(f"Submissions are {'accepted' if accepting else 'paused'} already.")
            at_work(context, person.name, person).set_accepting(accepting)

        return switched

    def _still_open(number: SubmissionId) -> SubmissionView:
        view = context.store.submissions.get(number)
        if view.is_done:
            raise Unchanged(f"Submission {number} has ended already, so there is nothing to cancel.")
        if all(run.ended_at is not None or run.cancel_at is not None for run in view.runs):
            raise Unchanged(f"Submission {number} is being cancelled already.")
        return view

    def end(person: Person, form: Form) -> None:
        number, now = _number(form), context.clock.now()
        _still_open(number)
        cancel(context.store.submissions, number, None, now)
        context.store.events.audit(person.name, "cancel", f"submission:{number}", now=now)

    def ending(person: Person, form: Form) -> Question:
        view = _still_open(_number(form))
        still = sum(run.ended_at is None for run in view.runs)
        runs = f"{still} open run{'' if still == 1 else 's'} of {len(view.runs)}"
        return Question(
            heading=f"Cancel submission {view.id}?",
            lines=(
                f"{isolated(view.file_name)} by {isolated(view.person)} on {view.board}: {runs}.",
                "Queued runs are cancelled now, and running jobs are killed. A cancelled run doesn't come back.",
            ),
            yes="Cancel its runs",
            form={"submission": str(view.id)},
        )

    def add(person: Person, form: Form) -> None:
        role = contest.role(form.get("role", "participant"))
        at_work(context, person.name, person).add_user(form.get("person", "").strip(), role)

    def ban(person: Person, form: Form) -> None:
        work = at_work(context, person.name, person)
        _not_banned(person, work.whom(_whom(form)))
        work.ban(_whom(form), _reason(form))

    def _not_banned(person: Person, whom: Person) -> None:
        access.check_may_ban(person, whom)
        if whom.banned_at is not None:
            why = f", for this reason: {isolated(whom.ban_reason)}" if whom.ban_reason else ""
            raise Unchanged(f"{isolated(whom.name)} is banned already{why}.")

    def banning(person: Person, form: Form) -> Question:
        whom, reason = at_work(context, person.name, person).whom(_whom(form)), _reason(form)
        _not_banned(person, whom)
        return Question(
            heading=f"Ban {isolated(whom.name)}?",
            lines=(
                f"{isolated(whom.name)} is person {whom.id}, {whom.role}, since {when(whom.created_at)}.",
                "Their tokens and sessions end at once, and they disappear from every board.",
                "Their queued runs are cancelled now, and running jobs are killed.",
                f"They are told this reason: {isolated(reason)}" if reason else "They are told no reason.",
            ),
            yes="Ban",
            form={"person": f"person:{whom.id}", "reason": reason},
        )

    def unban(person: Person, form: Form) -> None:
        work = at_work(context, person.name, person)
        whom = work.whom(_whom(form))
        access.check_may_ban(person, whom)
        if whom.banned_at is None:
            raise Unchanged(f"{isolated(whom.name)} isn't banned.")
        work.unban(_whom(form))

    def delete(person: Person, form: Form) -> None:
        at_work(context, person.name, person).delete_user(_whom(form))

    def deleting(person: Person, form: Form) -> Question:
        found = at_work(context, person.name, person).delete_preview(_whom(form))
        name, erased = isolated(found["name"]), found["erased"]
        return Question(
            heading=f"Delete {name} for good?",
            lines=(
                f"Erased: their name, {erased['accounts']} accounts, {erased['tokens']} tokens and all personal data.",
                f"Their {erased['questions']} questions are erased, with the answers that only they were given.",
                f"They leave {erased['courses']} rosters, and {found['open_runs']} open runs are cancelled.",
                f"{found['submissions']} submissions stay under a pseudonym, with their code.",
                f"In {found['audit_lines']} lines of the audit log the pseudonym takes their name's place.",
                *(
                    f"An earlier archive of {one['leaderboard']} has to be written again: {isolated(one['place'])}."
                    for one in found["archives"]
                ),
                "This can't be undone.",
            ),
            yes="Delete",
            form={"person": f"person:{found['person_id']}"},
        )

    acts: Acts = {
        "pause": switch(False), "resume": switch(True), "cancel": end, "add": add, "ban": ban, "unban": unban,
        "delete": delete,
    }  # fmt: skip
    asked: Questions = {"cancel": ending, "ban": banning, "delete": deleting}

    one_at_a_time = threading.Lock()  # so that both clicks of a double click see what the first one did

    @router.post("/staff/{act}")
    async def act(act: str, request: Request) -> Response:
        """Do it as the person who is signed in, once they have confirmed it; the audit log records it."""
        form = await form_of(request)

        def done() -> Response:
            person = visitors.staff(visitors.sender(request, form))
            if act not in acts:
                raise NotFound("act", act, known=list(acts))
            try:
                if act in asked and form.get("confirmed") != "yes":
                    return visitors.page(request, "confirm.html", person, act=act, asked=asked[act](person, form))
                with one_at_a_time:
                    acts[act](person, form)
            except Unchanged as why:
                return visitors.page(request, "unchanged.html", person, status=409, why=str(why))
            return RedirectResponse("/staff", status_code=303)

        return await run_in_threadpool(done)


def _number(form: Form) -> SubmissionId:
    text = form.get("submission", "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Invalid(f"{text[:40]!r} isn't a submission number")
    return SubmissionId(int(text))


def _whom(form: Form) -> str:
    return form.get("person", "").strip()[:100]


def _reason(form: Form) -> str:
    return form.get("reason", "").strip()[:200]


def _places(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the leader reported about each place, in words."""
    places = info.get("places")
    if not isinstance(places, dict):
        return []
    return [(str(name), _in_words(told)) for name, told in places.items()]


def _in_words(told: Any) -> str:
    return ", ".join(f"{key}: {value}" for key, value in told.items()) if isinstance(told, dict) else str(told)
