"""The pages where a browser signs in and out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import providers, sessions
from kbslurm.api.context import Context
from kbslurm.api.identity import check_not_banned
from kbslurm.api.pages.visitors import Visitors, form_of
from kbslurm.api.refusals import sentence
from kbslurm.errors import Banned
from kbslurm.store.views import Person


def sign_on_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @router.get("/login")
    def ask(request: Request, next_: Annotated[str, Query(alias="next", max_length=500)] = "/me") -> Response:
        """The sign-in providers, or a token to paste."""
        known, to = providers.providers(context), sessions.safe_next(next_)
        return visitors.page(request, "people/login.html", visitors.who(request), providers=known, next=to, why="")

    @router.post("/login")
    async def by_token(request: Request) -> Response:
        """Open a session for the owner of the token."""
        form = await form_of(request)
        return await run_in_threadpool(entered, request, form)

    def entered(request: Request, form: Mapping[str, str]) -> Response:
        sessions.check_same_site(request)
        to = sessions.safe_next(form.get("next", "/me"))
        secret = form.get("token", "").strip()[:512]
        person = context.store.tokens.person_of(secret, now=context.clock.now()) if secret else None
        why = _why_not(person)
        if person is None or why:
            known = providers.providers(context)
            return visitors.page(
                request, "people/login.html", visitors.who(request), status=403, providers=known, next=to, why=why
            )
        answer = RedirectResponse(to, status_code=303)
        sessions.open_session(context, request, answer, person, "browser (token)")
        return answer

    @router.post("/logout")
    async def leave(request: Request) -> Response:
        """End this browser's session."""
        form = await form_of(request)

        def ended() -> bool:
            sessions.check_same_site(request)
            if visitors.who(request) is None:  # it has ended already: by a second click, say
                return False
            visitors.sender(request, form)
            return context.store.tokens.revoke_secret(request.cookies[sessions.SESSION], now=context.clock.now())

        answer = RedirectResponse("/", status_code=303)
        if await run_in_threadpool(ended):
            answer.delete_cookie(sessions.SESSION)
        return answer


def _why_not(person: Person | None) -> str:
    """Why the owner of a token may not sign in; empty if they may."""
    if person is None:
        return "This token is unknown, was revoked, or isn't linked yet."
    if person.service is not None:
        return "This token is for programs: sign in with one of your own."
    try:
        check_not_banned(person)
    except Banned as error:
        return sentence(error)
    return ""
