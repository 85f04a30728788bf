"""Answers that go on until their reader has gone."""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from kbslurm.api.protocol import connection_of


class EndlessResponse(StreamingResponse):
    """A stream of which nobody knows the end. It ends when its reader says that nothing more comes: most likely it has
    gone. Proxies are asked to hold nothing back."""

    def __init__(self, lines: AsyncIterable[str], *, media_type: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(lines, media_type=media_type, headers={**(headers or {}), "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (connection := connection_of(scope)) is not None:
            connection.is_streaming = True
        await super().__call__(scope, receive, send)
