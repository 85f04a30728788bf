"""A browser's session: opened by signing in, stored in a cookie."""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import RedirectResponse

from kbslurm.api.context import Context
from kbslurm.domain import access
from kbslurm.errors import Refused
from kbslurm.store.views import Person

SESSION = "kbslurm_session"
SESSION_FOR = timedelta(hours=12)
_NEXT = re.compile(r"/(?![/\\])[\x21-\x7e]*\Z")


def open_session(context: Context, request: Request, answer: RedirectResponse, person: Person, device: str) -> None:
    """Sign the browser that gets this answer in as this person for a while."""
    now = context.clock.now()
    secret = context.store.tokens.issue(person.id, kind="web", device=device, expires_at=now + SESSION_FOR, now=now)
    context.known_secrets.note(secret, is_valid=True)
    set_cookie(context, request, answer, SESSION, secret, SESSION_FOR)


def safe_next(text: str) -> str:
    """Where to go after signing in: one of our own pages, or the start page."""
    return text if _NEXT.match(text) else "/"


def signed_on(context: Context, request: Request) -> Person | None:
    """The person whose session this browser holds. Only for pages: API calls never use cookies."""
    secret = secret_of(request)
    if not secret:
        return None
    person = context.store.tokens.person_of(secret, now=context.clock.now())
    if person is not None and person.service is not None:  # a program's token isn't a browser's session
        return None
    context.known_secrets.note(secret, is_valid=access.may_sign_in(person))
    return person


def secret_of(request: Request) -> str | None:
    """What the session's cookie says, if there is one."""
    return request.cookies.get(SESSION) or None


def set_cookie(
    context: Context,
    request: Request,
    answer: RedirectResponse,
    name: str,
    value: str,
    lasts: timedelta,
    path: str = "/",
) -> None:
    secure = (context.config.server.public_url or str(request.base_url)).startswith("https://")
    answer.set_cookie(
        name, value, max_age=int(lasts.total_seconds()), path=path, httponly=True, secure=secure, samesite="lax"
    )


def check_same_site(request: Request) -> None:
    """Keep another site's form from opening or ending a session: browsers say where a request comes from, but over
    plain HTTP only by Origin."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    foreign = (
        site not in ("same-origin", "none") if site is not None else origin is not None and not _is_own(request, origin)
    )
    if foreign:
        raise Refused("this request comes from another site")


def check_is_from_us(request: Request) -> None:
    """Keep another site's link from adding an account of its choice to whoever follows it. Browsers say where a link
    was, but over plain HTTP only by Referer, which our pages send to ourselves."""
    site, referrer = request.headers.get("sec-fetch-site"), request.headers.get("referer", "")
    is_ours = site in ("same-origin", "none") if site is not None else _is_own(request, _origin_of(referrer))
    if not is_ours:
        raise Refused("an account is only added from your own page", hint="Open /me, and follow its link.")


def _origin_of(url: str) -> str:
    try:
        found = urlsplit(url)
    except ValueError:
        return ""
    return f"{found.scheme}://{found.netloc}"


def _is_own(request: Request, origin: str) -> bool:
    context: Context = request.app.state.context
    own = {request.headers.get("host", "").lower(), urlsplit(context.config.server.public_url).netloc.lower()}
    return origin.rpartition("://")[2].lower() in own - {""}
