"""Who reads a page, by the session cookie, and whether a submitted form is really theirs."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import parse_qs, quote

from fastapi import Query, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import sessions
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work, check_helps
from kbslurm.api.hosting.hosting import Hosting
from kbslurm.api.pages import page_files
from kbslurm.api.pages.page_files import Table
from kbslurm.api.pages.rendering import HEADERS, page
from kbslurm.domain import access
from kbslurm.domain.access import BoardAct
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import Invalid, NoHost, NotFound, Refused
from kbslurm.store import origin
from kbslurm.store.views import Person, SubmissionView

Offset = Annotated[int, Query(alias="from", ge=0, le=2**31 - 1)]


class Visitors:
    """The reader, by the session cookie, and the token that their forms must carry."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known_key: bytes | None = None  # it never changes

    def who(self, request: Request) -> Person | None:
        person = sessions.signed_on(self._context, request)
        return person if access.may_sign_in(person) else None

    def csrf(self, request: Request) -> str:
        """A value that only our pages, loaded with this session, can know."""
        session = request.cookies.get(sessions.SESSION, "")
        return hmac.new(self._key(), f"csrf:{session}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()

    async def csrf_soon(self, request: Request) -> str:
        """The same, for coroutines."""
        if self._known_key is None:
            await run_in_threadpool(self._key)
        return self.csrf(request)

    def _key(self) -> bytes:
        if self._known_key is None:
            self._known_key = self._context.store.settings.secret("pages")
        return self._known_key

    def own(self, person: Person | None, number: int) -> SubmissionView:
        """This person's own submission; anyone else's is NotFound."""
        view = self._context.store.submissions.get(SubmissionId(number))
        if not access.may_see_submission(person, view):
            raise NotFound("submission", str(number))
        return view

    def staff(self, person: Person | None) -> Person:
        """This person, when they are of staff."""
        if person is None or not access.may_see_staff_page(person):
            raise Refused("this page is for staff")
        return person

    def at_board(self, person: Person, board: str, act: BoardAct, *, number: int | None = None) -> Hosting:
        """Staff, or whoever may do this on that board by a role there, at work. Others learn nothing of the board."""
        origin.narrowed("page")
        helps = not access.may_see_staff_page(person)
        if helps:
            try:
                check_helps(self._context, person, board, act, number=number)
            except NoHost:
                self.staff(person)
        return at_work(self._context, person.name, person, helper=helps)

    def at_submission(self, person: Person, number: int) -> tuple[Hosting, SubmissionView]:
        """Whoever may grade on this submission's board, at work, and the submission. Others don't learn whether it is
        there."""
        try:
            view = self._context.store.submissions.get(SubmissionId(number))
        except NotFound:
            self.staff(person)
            raise
        return self.at_board(person, view.board, "grade", number=view.board_id), view

    def page(
        self,
        request: Request,
        template: str,
        person: Person | None,
        *,
        as_files: Mapping[str, Table] | None = None,
        **told: Any,
    ) -> Response:
        """The page, or one of its tables as a file, where that was asked for."""
        tables = as_files or {}
        if (form := page_files.form_wanted(request)) is not None:
            return page_files.answer(request, form, tables, HEADERS)
        told = {"helps": self._helps(person), "file_links": page_files.links(request, tables), **told}
        return page(template, person=person, csrf=self.csrf(request) if person else "", **told)

    def _helps(self, person: Person | None) -> bool:
        """Whether somebody who isn't staff has a role on a board, and so some of its pages."""
        return person is not None and not person.is_staff and self._context.store.roster.helps(person.id)

    def is_ours(self, request: Request, form: Mapping[str, str]) -> bool:
        """Whether a form is of a page that was loaded with this session."""
        return hmac.compare_digest(form.get("csrf", "").encode("utf-8", "replace"), self.csrf(request).encode())

    def sender(self, request: Request, form: Mapping[str, str]) -> Person:
        """Who sent a form: signed in, from one of our pages."""
        sessions.check_same_site(request)
        origin.narrowed("page")
        person = self.who(request)
        if person is None:
            raise Refused("you aren't signed in", hint="Sign in, then try again.")
        if not self.is_ours(request, form):
            raise Refused("this form has expired", hint="Reload the page and try again.")
        return person


def expired_form(visitors: Visitors, request: Request, form: Mapping[str, str]) -> Person | None:
    """Who sent a form from a page of ours that belongs to another session than the one they have now; None for whoever
    may send it, and for whoever is signed in no more."""
    sessions.check_same_site(request)
    person = visitors.who(request)
    return None if person is None or visitors.is_ours(request, form) else person


async def form_of(request: Request) -> dict[str, str]:
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise Invalid("this form isn't valid")
    body = (await request.body()).decode("utf-8", "replace")
    try:
        found = parse_qs(body, keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise Invalid("this form has too many fields") from None
    return {name: values[0] for name, values in found.items()}


def to_login(request: Request) -> RedirectResponse:
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/login?next={quote(request.url.path + query)}", status_code=303)
