"""Around the whole app: caps on headers and bodies, security headers on every answer, HEAD wherever there is GET."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kbslurm.api.answers import Ascii

BODY_CAP = 1 << 20
HEAD_CAP = 32_768
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Guarded:
    """Around everything: bodies larger than any call accepts are refused unread, every answer carries security headers,
    and HEAD works wherever GET does.

    Uploads have their own cap and draining (see `upload`); only they may be larger than `BODY_CAP`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_head = scope["method"] == "HEAD"
        if is_head:  # the headers that GET would send, without the body
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
                    raise _HeadTold  # a stream would go on forever with no reader
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
    """The answer is complete."""


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
