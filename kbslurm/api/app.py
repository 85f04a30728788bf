"""The app: every router in the order that matters, errors as one sentence, and what is refused before any handler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote

import psycopg
from anyio import to_thread
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kbslurm import __version__
from kbslurm.api import pages, waiting
from kbslurm.api.answers import Ascii
from kbslurm.api.context import THREADS, Context
from kbslurm.api.metrics import Measured
from kbslurm.api.rate_limits import Limits, RateLimiter, is_known, networks
from kbslurm.api.routes import admin, artifacts, bot, feed, hosting, popcorn, sign_on, submitting
from kbslurm.api.standings import Standings
from kbslurm.contract.models import MODELS
from kbslurm.errors import BackendTrouble, KbslurmError, Misconfigured, NoHost, QuotaSpent, Unauthenticated
from kbslurm.observe.logs import teller

tell = teller("api")
BODY_CAP = 1 << 20
HEAD_CAP = 32_768
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


def create_app(context: Context, *, more: Sequence[APIRouter] = ()) -> FastAPI:
    """The app of this service. `more` are routers of other faces; they go before the streams' greedy path."""
    histories = waiting.Histories()
    standings = Standings(context)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = THREADS
        context.listener.start(asyncio.get_running_loop())
        try:
            yield
        finally:
            context.listener.close()
            await asyncio.to_thread(context.listener.join)

    app = FastAPI(
        title="kbslurm",
        version=__version__,
        description="A GPU kernel competition: what popcorn-cli calls, the hosts' calls and the event feed.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.context, app.state.standings, app.state.histories = context, standings, histories
    for router in (
        popcorn.routes(context, histories, standings),
        artifacts.routes(context),
        admin.routes(context, histories),
        hosting.routes(context),
        bot.routes(context),
        feed.routes(context),
        sign_on.routes(context),
        pages.routes(context, histories, standings),
        *more,
    ):
        app.include_router(router)
    app.include_router(submitting.routes(context, histories))
    app.add_exception_handler(KbslurmError, _told)
    app.add_exception_handler(RequestValidationError, _flattened)
    app.add_exception_handler(HTTPException, _plain)
    app.add_exception_handler(psycopg.DataError, _unkeepable)
    app.add_exception_handler(UnicodeError, _unkeepable)
    app.add_exception_handler(Exception, _bug)
    app.add_middleware(Guarded)
    server = context.config.server
    app.add_middleware(
        RateLimiter,
        trusted=networks(server.trusted_proxies),
        limits=Limits.of(server.requests_per_minute),
        refused=_said,
    )
    app.add_middleware(Measured, metrics=context.metrics)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


def _document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the examples whole: the framework would leave out whatever is null in them."""
    found = app.openapi_schema
    if found is None:
        found = FastAPI.openapi(app)
        for name, schema in found["components"]["schemas"].items():
            extra = getattr(MODELS.get(name), "model_config", {}).get("json_schema_extra")
            if isinstance(extra, dict):
                schema.update(extra)
    return found


def _said(request: Request, detail: str, status: int, headers: dict[str, str] | None = None) -> Response:
    """What went wrong: a page for whoever asked for one, JSON for everybody else."""
    found = pages.page_of_error(request, status, detail)
    if found is not None:
        found.headers.update(headers or {})
        return found
    return Ascii({"detail": detail}, status_code=status, headers=headers)


def sentence(error: KbslurmError) -> str:
    """What went wrong and what to do next, as one text."""
    return f"{error.message}. {error.hint}" if error.hint else error.message


async def _told(request: Request, error: Exception) -> Response:
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
    return _said(request, detail, error.http_status, headers)


async def _flattened(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    told = [f"{'.'.join(str(part) for part in row['loc'])}: {row['msg']}" for row in error.errors()]
    return _said(request, "; ".join(told)[:1000] or "the request can't be read", 422)


async def _plain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404 and (where := _without_slash(request)) is not None:
        return RedirectResponse(where, 308)
    return _said(request, str(error.detail), error.status_code, dict(error.headers or {}))


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


async def _unkeepable(request: Request, error: Exception) -> Response:
    """NUL, half of a surrogate pair, a number out of range: nothing that we keep is called so."""
    return _said(request, "a text or number of the request is one that can't be kept", 400)


async def _bug(request: Request, error: Exception) -> Response:
    request.app.state.context.metrics.met(error)
    tell("a bug", level="error", path=request.url.path, error=repr(error), trace=_trace(error))
    return _said(request, "a bug of ours; the server's log says more", 500)


def _trace(error: BaseException) -> str:
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " > ".join(frames)


class Guarded:
    """Around everything: bodies that no call of ours takes are refused unread, every answer carries safe headers, and
    whatever can be got has a head.

    Uploads have a cap and a drain of their own (see `upload`); they alone may be larger than `BODY_CAP`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_head = scope["method"] == "HEAD"
        if is_head:  # what GET would say, without the saying
            scope = {**scope, "method": "GET"}

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in HEADERS if pair[0] not in known)]
                await send(message)
                if is_head:
                    await send({"type": "http.response.body", "body": b""})
            elif is_head:
                if message.get("more_body"):
                    raise _HeadTold  # a stream would go on for ever, for nobody
            else:
                await send(message)

        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD_CAP:
            answer = Ascii({"detail": "the headers are too large"}, status_code=431, headers={"Connection": "close"})
            await answer(scope, receive, sent)
            return
        if not _is_upload(scope) and _declared(scope) > BODY_CAP:
            await Ascii({"detail": "the body is too large"}, status_code=413, headers={"Connection": "close"})(
                scope, receive, sent
            )
            return
        with suppress(_HeadTold):
            await self.app(scope, _capped(scope, receive), sent)


class _HeadTold(Exception):
    """All that was asked for has been said."""


def _is_upload(scope: Scope) -> bool:
    return any(name == b"content-type" and value.startswith(b"multipart/") for name, value in scope["headers"])


def _declared(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _capped(scope: Scope, receive: Receive) -> Receive:
    if _is_upload(scope):
        return receive
    size = 0

    async def received() -> Message:
        nonlocal size
        message: Any = await receive()
        size += len(message.get("body", b""))
        if size > BODY_CAP:
            raise HTTPException(413, "the body is too large")
        return message  # type: ignore[no-any-return]

    return received
