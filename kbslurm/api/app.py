"""The app: the routers in the required order, errors as one sentence, and what is refused before any handler."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from anyio import to_thread
from fastapi import APIRouter, FastAPI, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from kbslurm import __version__
from kbslurm.api import waiting
from kbslurm.api.addresses import networks
from kbslurm.api.context import THREADS, Context
from kbslurm.api.door import Door
from kbslurm.api.guard import Guarded
from kbslurm.api.host_names import HostNames
from kbslurm.api.incoming import HeardOut
from kbslurm.api.metrics import Measured
from kbslurm.api.page_turns import PagesInTurn
from kbslurm.api.pages import router as pages
from kbslurm.api.rate_limits import Limits, RateLimiter
from kbslurm.api.refusals import of_a_bug, of_http_error, of_invalid_values, of_our_error, of_unkeepable_text, refusal
from kbslurm.api.routes import (
    artifacts,
    bot,
    contests,
    feed,
    nodes,
    popcorn,
    profiling,
    publishing,
    pulling,
    sign_on,
    submitting,
)
from kbslurm.api.routes.hosts import router as hosts
from kbslurm.api.standings_cache import StandingsCache
from kbslurm.contract.models import MODELS
from kbslurm.errors import KbslurmError


def create_app(context: Context, *, more: Sequence[APIRouter] = ()) -> FastAPI:
    """The app of this service. `more` are other routers; they go before the streams' greedy path."""
    histories = waiting.Histories()
    standings = StandingsCache(context)

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
        openapi_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.context, app.state.standings, app.state.histories = context, standings, histories
    for router in (
        popcorn.routes(context, histories, standings),
        artifacts.routes(context),
        profiling.routes(context, histories),
        hosts.routes(context, histories),
        bot.routes(context),
        feed.routes(context),
        contests.routes(context),
        sign_on.routes(context),
        publishing.routes(context),
        pulling.routes(context),
        nodes.routes(context),
        pages.routes(context, histories, standings),
        *more,
    ):
        app.router.routes.extend(router.routes)  # to include a router would read its routes' signatures again
    app.router.routes.extend(_documented(app, context).routes)
    app.router.routes.extend(submitting.routes(context, histories).routes)
    app.add_exception_handler(KbslurmError, of_our_error)
    app.add_exception_handler(RequestValidationError, of_invalid_values)
    app.add_exception_handler(HTTPException, of_http_error)
    app.add_exception_handler(psycopg.DataError, of_unkeepable_text)
    app.add_exception_handler(UnicodeError, of_unkeepable_text)
    app.add_exception_handler(Exception, of_a_bug)
    server = context.config.server
    app.add_middleware(PagesInTurn, entrance=context.connections.entrance)
    app.add_middleware(Guarded, context=context, names=HostNames(server))
    app.add_middleware(
        RateLimiter,
        trusted=networks(server.trusted_proxies),
        limits=Limits.of(server.requests_per_minute),
        connections=context.connections,
        known=context.known_secrets,
        refused=refusal,
    )
    app.add_middleware(Measured, metrics=context.metrics)
    app.add_middleware(HeardOut, connections=context.connections, metrics=context.metrics)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


def _documented(app: FastAPI, context: Context) -> APIRouter:
    """The document's own route: the framework's writes all of it again for each request, while no other is answered."""
    router = APIRouter(include_in_schema=False, route_class=Door)

    writing, written = asyncio.Lock(), list[bytes]()

    def write() -> bytes:
        return json.dumps(app.openapi(), ensure_ascii=True).encode()

    @router.get("/openapi.json")
    async def document() -> Response:
        """The API's specification."""
        async with writing:  # once, on a thread that answers nothing else
            if not written:
                written.append(await context.patiently(write))
        return Response(written[0], media_type="application/json")

    return router


def _document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document with complete examples: the framework would leave out null values."""
    found = app.openapi_schema
    if found is None:
        found = FastAPI.openapi(app)
        for name, schema in found["components"]["schemas"].items():
            extra = getattr(MODELS.get(name), "model_config", {}).get("json_schema_extra")
            if isinstance(extra, dict):
                schema.update(extra)
    return found
