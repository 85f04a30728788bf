"""The staff's page of the audit log: what hosts did, by whom, on what and from where."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work
from kbslurm.api.pages.page_files import Table, most, page_and_files
from kbslurm.api.pages.visitors import Visitors, to_login
from kbslurm.domain import contest

Words = Annotated[str, Query(max_length=contest.WHOM_CAP)]
Before = Annotated[int | None, Query(ge=0, le=2**63 - 1)]
SHOWN = 50
COLUMNS = ("id", "at", "by", "via", "where", "act", "subject", "named", "data")


def staff_audit_page(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @page_and_files(router, "/staff/audit")
    def audit(request: Request, by: Words = "", act: Words = "", before: Before = None) -> Response:
        """The audit log, newest first: all of it, what one person did, or one kind of act."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        visitors.staff(person)
        wanted = {"by": by.strip(), "act": act.strip()}
        rows = at_work(context, person.name, person).audit_named(
            **wanted, limit=most(request, SHOWN + 1), before=before
        )
        there = frozenset(f"board:{one.id}" for one in context.store.boards.all(counted=False))
        chosen = {name: text for name, text in wanted.items() if text}
        older = f"?{urlencode({**chosen, 'before': rows[SHOWN - 1]['id']})}" if len(rows) > SHOWN else ""
        return visitors.page(
            request,
            "staff/audit.html",
            person,
            as_files={"audit": Table(columns=COLUMNS, rows=rows)},
            rows=[{**row, "told": _in_words(row["data"]), "to": _address(row, there)} for row in rows[:SHOWN]],
            wanted=wanted,
            newest=f"?{urlencode(chosen)}" if chosen else "/staff/audit",
            is_first=before is None,
            older=older,
        )


def _in_words(data: Mapping[str, Any]) -> str:
    """What an act was about, beside its subject."""
    return ", ".join(f"{_named(name)}: {_plain(value)}" for name, value in data.items())[:500]


def _named(name: str) -> str:
    return name.replace("gpu_s", "GPU-seconds").replace("_", " ")


def _plain(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case list():
            return " ".join(map(_plain, value))
        case dict():
            return "; ".join(f"{name} {_plain(one)}" for name, one in value.items())
        case _:
            return str(value)


def _address(row: Mapping[str, Any], boards: Collection[str]) -> str:
    """Where its subject has a page; of boards these have one."""
    kind, _, name = row["subject"].partition(":")
    if kind == "person" and name.isdecimal() and row["named"]:
        return f"/staff/people/{name}"
    if kind == "submission" and name.isdecimal():
        return f"/staff/submissions/{name}"
    if row["subject"] in boards:
        return f"/staff/board/{row['named']}"
    return ""
