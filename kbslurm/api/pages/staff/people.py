"""The staff's pages of people: found by a part of what they are known by, and one of them with what can be done."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work
from kbslurm.api.hosting.hosting import Hosting
from kbslurm.api.pages.page_files import Table, most, page_and_files
from kbslurm.api.pages.staff.forms import refused
from kbslurm.api.pages.staff.submissions import RUNS, run_rows
from kbslurm.api.pages.visitors import Offset, Visitors, form_of, to_login
from kbslurm.api.parameters import Number
from kbslurm.domain import access, contest
from kbslurm.errors import Invalid, KbslurmError
from kbslurm.store.people import Group
from kbslurm.store.views import Person

Words = Annotated[str, Query(max_length=contest.WHOM_CAP)]
GROUPS: tuple[Group, ...] = get_args(Group)
SHOWN = 50
MOST_DAYS = 3650  # that a token lasts
LATEST = 20  # submissions of one person
PEOPLE = (
    "id", "name", "role", "banned_at", "ban_reason", "full_name", "email", "discord_id", "github_id", "university",
    "courses", "team", "cluster_account", "submissions", "created_at", "seen_at",
)  # fmt: skip


def staff_people_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @page_and_files(router, "/staff/people")
    def people(request: Request, q: Words = "", only: Words = "", start: Offset = 0) -> Response:
        """People, by a part of their name or e-mail address; staff first."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        visitors.staff(person)
        group = next((one for one in GROUPS if one == only), None)
        if only and group is None:
            raise Invalid(f"{contest.shown(only)} isn't a group of people", hint=f"Choose one of: {', '.join(GROUPS)}.")
        found = at_work(context, person.name, person).find_users(
            q.strip(), only=group, limit=most(request, SHOWN), offset=start
        )
        chosen = {name: text for name, text in (("q", q.strip()), ("only", only)) if text}
        more = start + len(found["people"]) < found["of"]
        return visitors.page(
            request,
            "staff/people.html",
            person,
            as_files={"people": Table(columns=PEOPLE, rows=found["people"])},
            q=q.strip(),
            only=only,
            groups=GROUPS,
            people=[{**one, "may_ban": _may_ban(person, one)} for one in found["people"]],
            of=found["of"],
            start=start,
            roles=_roles(person),
            here_again=f"/staff/people{f'?{urlencode(chosen)}' if chosen else ''}",
            before=f"?{urlencode({**chosen, 'from': max(0, start - SHOWN)})}" if start else "",
            after=f"?{urlencode({**chosen, 'from': start + SHOWN})}" if more else "",
        )

    @router.post("/staff/people/{person_id}/token")
    async def issue(person_id: Number, request: Request) -> Response:
        """A new token for a person, or for a program of theirs, which this page alone tells."""
        form = await form_of(request)

        def issued() -> Response:
            person, back = visitors.staff(visitors.sender(request, form)), f"/staff/people/{person_id}"
            try:
                told = _issued(at_work(context, person.name, person), f"person:{person_id}", form)
            except KbslurmError as error:
                return refused(context, visitors, request, person, form, error, back)
            service = form.get("service") == "yes"
            return visitors.page(request, "staff/token.html", person, told=told, service=service, back=back)

        return await run_in_threadpool(issued)

    @page_and_files(router, "/staff/people/{person_id}")
    def one(person_id: Number, request: Request) -> Response:
        """A person: accounts, tokens, submissions, and what can be done."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        visitors.staff(person)
        work = at_work(context, person.name, person)
        whom = f"person:{person_id}"
        found = work.known_user(whom)
        rows = work.find_submissions(person=whom, limit=most(request, LATEST))
        return visitors.page(
            request,
            "staff/person.html",
            person,
            as_files={"submissions": Table(columns=RUNS, rows=run_rows(rows))},
            one=found,
            whom=whom,
            then=f"/staff/people/{person_id}",
            tokens=work.tokens(whom),
            boards=frozenset(context.store.boards.names()),
            rows=rows,
            may_ban=_may_ban(person, found),
            may_give=access.may_give(person, found["role"]),
            roles=_roles(person),
            now=work.now.isoformat(),
        )


def _issued(work: Hosting, whom: str, form: Mapping[str, str]) -> Mapping[str, Any]:
    """The new token, which nobody is told again."""
    days, gpu_s = (form.get(name, "").strip() for name in ("days", "gpu_s"))
    if days and not (days.isascii() and days.isdecimal() and 1 <= int(days[:5]) <= MOST_DAYS):
        raise Invalid(f"{days[:40]!r} isn't a number of days", hint=f"Give 1 to {MOST_DAYS}, or nothing: no end.")
    try:
        quota = float(gpu_s) if gpu_s else None
    except ValueError:
        quota = math.nan
    if quota is not None and not (math.isfinite(quota) and 0 <= quota < 1e9):
        raise Invalid(f"{gpu_s[:40]!r} isn't a number of GPU-seconds", hint="Leave it empty for no quota of its own.")
    return work.issue_token(
        whom,
        device=form.get("device", "").strip(),
        days=int(days) if days else None,
        service=form.get("service") == "yes",
        gpu_s_per_day=quota,
    )


def _roles(person: Person) -> list[str]:
    return [role for role in get_args(access.Role) if access.may_give(person, role)]


def _may_ban(person: Person, whom: Mapping[str, Any]) -> bool:
    """Whether a button makes sense; the act itself is checked again."""
    own, is_staff = whom["id"] == person.id, access.is_staff(whom["role"])
    return not own and (not is_staff or person.role == "owner")
