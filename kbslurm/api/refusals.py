"""Every error as one sentence: JSON, or a page for browsers."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.routing import Match

from kbslurm.api import invalid_values
from kbslurm.api.answers import Ascii
from kbslurm.api.pages.rendering import page_of_error
from kbslurm.api.rate_limits import is_known
from kbslurm.errors import BackendTrouble, KbslurmError, Misconfigured, NoHost, QuotaSpent, Unauthenticated
from kbslurm.observe.logs import teller

tell = teller("api")
HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store"}
KIND = "X-Kbslurm-Error"  # the error's name in kbslurm/errors.py, for clients that show it


def refusal(request: Request, detail: str, status: int, headers: dict[str, str] | None = None) -> Response:
    """What went wrong: a page for browsers, JSON for everyone else."""
    found = page_of_error(request, status, detail) or Ascii({"detail": detail}, status_code=status)
    # The guard adds these to every answer, but some refusals are made outside it.
    found.headers.update({**HEADERS, **(headers or {})})
    return found


def sentence(error: KbslurmError) -> str:
    """What went wrong and what to do next, as one string."""
    return f"{error.message}. {error.hint}" if error.hint else error.message


def public_sentence(error: KbslurmError) -> str:
    """The same without what only operators may know: paths, addresses, what a driver said. Their log has it."""
    if isinstance(error, Misconfigured):
        return "the server is misconfigured; its log has the reason, ask a host"
    if isinstance(error, BackendTrouble):
        return f"{error.backend} has a problem; try again soon"
    return sentence(error)


async def of_our_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, KbslurmError)
    request.app.state.context.metrics.met(error)
    headers = {KIND: error.kind}
    if isinstance(error, Misconfigured):
        tell("misconfigured", level="error", path=request.url.path, why=sentence(error))
    if isinstance(error, BackendTrouble):
        tell("trouble", level="warning", path=request.url.path, why=sentence(error))
        headers["Retry-After"] = str(max(1, round(error.retry_after_s or 5)))
    if isinstance(error, QuotaSpent) and error.resets_at is not None:
        left_s = (error.resets_at - request.app.state.context.clock.now()).total_seconds()
        headers["Retry-After"] = str(max(1, round(left_s)))
    if isinstance(error, Unauthenticated) and error.http_status == 401:
        headers["WWW-Authenticate"] = "Bearer"
        if isinstance(error, NoHost):
            is_known(request.scope)
    return refusal(request, public_sentence(error), error.http_status, headers)


async def of_invalid_values(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    told = [invalid_values.sentence(row) for row in error.errors()]
    return refusal(request, "; ".join(told)[:1000] or "the request can't be read", 422)


async def of_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404 and (where := _without_slash(request)) is not None:
        return RedirectResponse(where, 308)
    return refusal(request, _in_words(request, error), error.status_code, dict(error.headers or {}))


def _in_words(request: Request, error: HTTPException) -> str:
    """What a person is told who typed or kept an address; clients get the framework's words."""
    if "text/html" in request.headers.get("accept", ""):
        if error.status_code == 404:
            return "there is no page at this address"
        if error.status_code == 405 and request.method in ("GET", "HEAD"):
            return "this address only takes a form; go back to the page that has it"
    return str(error.detail)


def _without_slash(request: Request) -> str | None:
    """The page that a browser asked for with an extra trailing slash; None if there is none."""
    path, scope = request.url.path, request.scope
    wanted = path.rstrip("/")
    if path == wanted or "text/html" not in request.headers.get("accept", "") or path.startswith("//"):
        return None
    here = {**scope, "path": wanted}
    if not any(route.matches(here)[0] is Match.FULL for route in request.app.routes):
        return None
    return quote(wanted) + (f"?{request.url.query}" if request.url.query else "")


async def of_unkeepable_text(request: Request, error: Exception) -> Response:
    """NUL, half a surrogate pair, or a number out of range: no stored value can contain these."""
    return refusal(request, "the request contains a text or number that can't be stored", 400)


async def of_a_bug(request: Request, error: Exception) -> Response:
    request.app.state.context.metrics.met(error)
    tell("a bug", level="error", path=request.url.path, error=repr(error), trace=_trace(error))
    return refusal(request, "this is a bug in kbslurm; the server's log has the details", 500)


def _trace(error: BaseException) -> str:
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " > ".join(frames)
