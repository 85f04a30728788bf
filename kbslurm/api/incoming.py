"""A request's body on its way in: counted, read with a cap and a deadline, or drained before an early answer.

Some clients lose an answer that comes before they have sent everything, so what is refused is first taken in and
dropped, up to a number of bytes and until a deadline. Beyond either the connection closes after the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kbslurm.api.connections import Connections, Crowded
from kbslurm.api.metrics import ApiMetrics
from kbslurm.errors import Invalid, TooLarge

DRAIN_CAP = 32 << 20
PIECE = 65_536
MARK = "kbslurm.incoming"
CLOSE = (b"connection", b"close")


class TooSlow(Invalid):
    """The upload was too slow."""

    http_status = 408


class Incoming:
    """One request's body. `client` is whose unfinished requests it counts among."""

    def __init__(self, scope: Scope, receive: Receive, connections: Connections, metrics: ApiMetrics) -> None:
        self.client = ""
        self._receive, self._connections, self._metrics = receive, connections, metrics
        self._declared, self.is_complete = _announced(scope)
        self._is_asked_for = (b"expect", b"100-continue") not in scope["headers"]
        self._ends_at = asyncio.get_running_loop().time() + connections.limits.body_within_s

    async def receive(self) -> Message:
        """The next message, for the app."""
        self._is_asked_for = True
        message = await self._receive()
        if message["type"] == "http.request":
            self.is_complete = not message.get("more_body", False)
        return message

    async def read(self, cap: int, too_large: str, hint: str) -> bytes:
        """All of it; TooLarge, TooSlow or Crowded without having kept more than the cap."""
        if self._declared > cap:
            raise TooLarge(too_large, hint=hint)
        found = bytearray()
        try:
            async with aclosing(self._pieces("read")) as pieces:
                async for piece in pieces:
                    found += piece
                    if len(found) > cap:
                        raise TooLarge(too_large, hint=hint)
        except TimeoutError:
            self._connections.turned_away("late")
            raise TooSlow("the upload was too slow", hint="Check your connection and try again.") from None
        return bytes(found)

    async def drain(self) -> bool:
        """Take in and drop the rest, as far as is reasonable; False if some of it is still coming."""
        if not self._is_asked_for:
            return False  # the client waits for leave to send it
        size = 0
        try:
            async with aclosing(self._pieces("dropped")) as pieces:
                async for piece in pieces:
                    size += len(piece)
                    if size > DRAIN_CAP:
                        return False
        except (TimeoutError, Crowded, ClientDisconnect):
            return False
        return True

    async def _pieces(self, came: str) -> AsyncGenerator[bytes, None]:
        if self.is_complete:
            return
        with self._connections.unfinished(self.client):
            while not self.is_complete:
                async with asyncio.timeout_at(self._ends_at):
                    message = await self.receive()
                if message["type"] == "http.disconnect":
                    self._metrics.aborted_uploads.inc()
                    raise ClientDisconnect
                piece = message.get("body", b"")
                self._metrics.body_bytes.labels(came).inc(len(piece))
                yield piece


class HeardOut:
    """Around everything: gives each request its `Incoming`, and lets no answer overtake its request."""

    def __init__(self, app: ASGIApp, *, connections: Connections, metrics: ApiMetrics) -> None:
        self.app, self._connections, self._metrics = app, connections, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        incoming = scope[MARK] = Incoming(scope, receive, self._connections, self._metrics)

        async def sent(message: Message) -> None:
            early = message["type"] == "http.response.start" and not incoming.is_complete
            if early and not await incoming.drain():
                message = {**message, "headers": [*(one for one in message["headers"] if one[0] != CLOSE[0]), CLOSE]}
            if len(message.get("body", b"")) > PIECE:
                await _in_pieces(message, send)
            else:
                await send(message)

        await self.app(scope, incoming.receive, sent)


async def _in_pieces(message: Message, send: Send) -> None:
    """A large answer piece by piece: others are served in between, and who reads nothing gets only the first."""
    body = memoryview(message["body"])
    for start in range(0, len(body), PIECE):
        is_last = start + PIECE >= len(body)
        more = message.get("more_body", False) or not is_last
        await send({**message, "body": bytes(body[start : start + PIECE]), "more_body": more})
        await asyncio.sleep(0)


def incoming_of(scope: Scope) -> Incoming:
    """This request's."""
    return cast("Incoming", scope[MARK])


def _announced(scope: Scope) -> tuple[int, bool]:
    """How many bytes the headers announce, and whether there is nothing to wait for."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return 0, False
    length = headers.get(b"content-length", b"0")
    declared = int(length) if length.isdigit() else 0
    return declared, declared == 0
