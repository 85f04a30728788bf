"""The page of an invitation: whom it is for, and a button that signs them in."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import sessions
from kbslurm.api.context import Context
from kbslurm.api.identity import SECRET_CAP
from kbslurm.api.invitations import invited, taken_invitation
from kbslurm.api.pages.visitors import Visitors

Code = Annotated[str, Path(max_length=SECRET_CAP)]


def joining_page(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @router.get("/join/{code}")
    def ask(code: Code, request: Request) -> Response:
        """Whom it is for. Looking doesn't use it up: mail programs open links before people do."""
        person = invited(context, code)
        return visitors.page(request, "people/join.html", visitors.who(request), invited=person, code=code)

    @router.post("/join/{code}")
    async def take(code: Code, request: Request) -> Response:
        """Sign this browser in as the person that it is for."""

        def signed_in() -> Response:
            sessions.check_same_site(request)
            person = taken_invitation(context, code)
            answer = RedirectResponse("/me", status_code=303)
            sessions.open_session(context, request, answer, person, "browser (invitation)")
            return answer

        return await run_in_threadpool(signed_in)
