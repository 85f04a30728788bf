"""Every error as one sentence: JSON, or a page for whoever asked for one."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.routing import Match

from kbslurm.api.answers import Ascii
from kbslurm.api.pages.rendering import page_of_error
from kbslurm.api.rate_limits import is_known
from kbslurm.errors import BackendTrouble, KbslurmError, Misconfigured, NoHost, QuotaSpent, Unauthenticated
from kbslurm.observe.logs import teller

tell = teller("api")


def refusal(request: Request, detail: str, status: int, headers: dict[str, str] | None = None) -> Response:
    """What went wrong: a page for whoever asked for one, JSON for everybody else."""
    found = page_of_error(request, status, detail)
    if found is not None:
        found.headers.update(headers or {})
        return found
    return Ascii({"detail": detail}, status_code=status, headers=headers)


def sentence(error: KbslurmError) -> str:
    """What went wrong and what to do next, as one text."""
    return f"{error.message}. {error.hint}" if error.hint else error.message


async def of_our_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, KbslurmError)
    request.app.state.context.metrics.met(error)
    headers: dict[str, str] = {}
    detail = sentence(error)
    if isinstance(error, Misconfigured):
        # Where files are is the hosts' business: they find it in the log.
        tell("misconfigured", level="error", path=request.url.path, why=detail)
        detail = "the server is misconfigured; a host finds the reason in its log"
    if isinstance(error, BackendTrouble):
        tell("trouble", level="warning", path=request.url.path, why=detail)
        detail = f"{error.backend} is in trouble; try again soon"
        headers["Retry-After"] = str(max(1, round(error.retry_after_s or 5)))
    if isinstance(error, QuotaSpent):
        left_s = (error.resets_at - request.app.state.context.clock.now()).total_seconds()
        headers["Retry-After"] = str(max(1, round(left_s)))
    if isinstance(error, Unauthenticated) and error.http_status == 401:
        headers["WWW-Authenticate"] = "Bearer"
        if isinstance(error, NoHost):
            is_known(request.scope)
    return refusal(request, detail, error.http_status, headers)


async def of_invalid_values(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    told = [f"{'.'.join(str(part) for part in row['loc'])}: {row['msg']}" for row in error.errors()]
    return refusal(request, "; ".join(told)[:1000] or "the request can't be read", 422)


async def of_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404 and (where := _without_slash(request)) is not None:
        return RedirectResponse(where, 308)
    return refusal(request, str(error.detail), error.status_code, dict(error.headers or {}))


def _without_slash(request: Request) -> str | None:
    """Where the page is that a browser was sent to with a slash too many; None when there is none."""
    path, scope = request.url.path, request.scope
    wanted = path.rstrip("/")
    if path == wanted or "text/html" not in request.headers.get("accept", "") or path.startswith("//"):
        return None
    here = {**scope, "path": wanted}
    if not any(route.matches(here)[0] is Match.FULL for route in request.app.routes):
        return None
    return quote(wanted) + (f"?{request.url.query}" if request.url.query else "")


async def of_unkeepable_text(request: Request, error: Exception) -> Response:
    """NUL, half of a surrogate pair, a number out of range: nothing that we keep is called so."""
    return refusal(request, "a text or number of the request is one that can't be kept", 400)


async def of_a_bug(request: Request, error: Exception) -> Response:
    request.app.state.context.metrics.met(error)
    tell("a bug", level="error", path=request.url.path, error=repr(error), trace=_trace(error))
    return refusal(request, "a bug of ours; the server's log says more", 500)


def _trace(error: BaseException) -> str:
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " > ".join(frames)
