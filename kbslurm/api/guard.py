"""Around the whole app: refusals that no route decides, security headers on every answer, HEAD where there is GET."""

from __future__ import annotations

from contextlib import suppress

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kbslurm.api import identity, refusals
from kbslurm.api.context import Context
from kbslurm.api.host_names import HostNames
from kbslurm.api.protocol import connection_of
from kbslurm.api.refusals import refusal
from kbslurm.errors import KbslurmError

HEAD_CAP = 32_768
HEALTH = "/health"
HEADERS = tuple((name.lower().encode(), value.encode()) for name, value in refusals.HEADERS.items())


class Guarded:
    """Refuses headers that are too large or give a body two lengths, a Host that isn't us, and requests while only the
    reserve is left."""

    def __init__(self, app: ASGIApp, *, context: Context, names: HostNames) -> None:
        self.app, self._context, self._names = app, context, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if (connection := connection_of(scope)) is not None:
            connection.is_streaming = False
        is_head = scope["method"] == "HEAD"
        if is_head:  # the headers that GET would send, without the body
            scope = {**scope, "method": "GET"}

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in HEADERS if pair[0] not in known)]
                if self._is_in_reserve(scope):
                    message["headers"].append((b"connection", b"close"))  # nobody stays there
                await send(message)
                if is_head:
                    await send({"type": "http.response.body", "body": b""})
            elif is_head:
                if message.get("more_body"):
                    raise _HeadTold  # a stream would go on forever with no reader
            else:
                await send(message)

        with suppress(_HeadTold):
            await (await self._refused(scope) or self.app)(scope, receive, sent)

    async def _refused(self, scope: Scope) -> Response | None:
        request = Request(scope)
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD_CAP:
            return refusal(request, "the headers are too large", 431, {"Connection": "close"})
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            # A proxy that believes the one while we believe the other would take our answers for someone else's.
            said = "the request has both Content-Length and Transfer-Encoding. Send one of them."
            return refusal(request, said, 400, {"Connection": "close"})
        if scope["path"] == HEALTH:  # load balancers ask by address, and always get an answer
            return None
        host = request.headers.get("host", "")
        if not self._names.includes(host):
            self._context.metrics.turn_away("host")
            return refusal(request, self._names.refusal(host), 421)
        if self._is_in_reserve(scope) and not await self._is_host(request.headers):
            self._context.metrics.turn_away("full")
            said = "the service has as many connections as it can serve. Try again in 5 s."
            return refusal(request, said, 503, {"Retry-After": "5", "Connection": "close"})
        return None

    def _is_in_reserve(self, scope: Scope) -> bool:
        """Whether the request came on one of the last connections, and they still are the last ones."""
        connection = connection_of(scope)
        return connection is not None and connection.is_in_reserve and self._context.connections.is_full

    async def _is_host(self, headers: Headers) -> bool:
        sender = identity.claimed(headers)
        if not sender.bearer:
            return False
        try:
            await run_in_threadpool(identity.service, self._context, sender)
        except KbslurmError:
            return False
        return True


class _HeadTold(Exception):
    """The answer is complete."""
