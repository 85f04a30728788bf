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

        has_turn = True

        def end_turn() -> None:
            nonlocal has_turn
            if has_turn:  # only once: the next request on this connection may have come by the end
                has_turn = False
                self._entrance.leave(connection)

        async def sent(message: Message) -> None:
            end_turn()
            await send(message)

        try:
            await self.app(scope, receive, sent)
        finally:
            end_turn()
