"""The staff's pages of people: found by a part of what they are known by, and one of them with what can be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work
from kbslurm.api.pages.page_files import Table, most, page_and_files
from kbslurm.api.pages.staff.submissions import RUNS, run_rows
from kbslurm.api.pages.visitors import Offset, Visitors, to_login
from kbslurm.api.parameters import Number
from kbslurm.domain import access, contest
from kbslurm.errors import Invalid
from kbslurm.store.people import Group
from kbslurm.store.views import Person

Words = Annotated[str, Query(max_length=contest.WHOM_CAP)]
GROUPS: tuple[Group, ...] = get_args(Group)
SHOWN = 50
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


def _roles(person: Person) -> list[str]:
    return [role for role in get_args(access.Role) if access.may_give(person, role)]


def _may_ban(person: Person, whom: Mapping[str, Any]) -> bool:
    """Whether a button makes sense; the act itself is checked again."""
    own, is_staff = whom["id"] == person.id, access.is_staff(whom["role"])
    return not own and (not is_staff or person.role == "owner")
