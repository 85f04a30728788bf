"""Pages are made a few at a time (see `entrance`). A page's turn ends when its answer begins, so a browser that reads
slowly holds up nobody."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kbslurm.api.entrance import Entrance
from kbslurm.api.protocol import connection_of


class PagesInTurn:
    """Around the app."""

    def __init__(self, app: ASGIApp, *, entrance: Entrance) -> None:
        self.app, self._entrance = app, entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope) if scope["type"] == "http" else None
        if connection is None:
            await self.app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            self._entrance.leave(connection)
            await send(message)

        await self.app(scope, receive, sent)
