"""Pages take turns, so that a crowd of browsers doesn't keep clients that poll waiting."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

AT_ONCE = 8
PAGES = ("/board/", "/problem/")


class PagesInTurn:
    """Around the app: at most `AT_ONCE` pages are made at a time, in the order in which they were asked for.

    Everything else passes: it waits for a few pages at most, however many have been asked for. A turn ends when the
    answer begins, so a browser that reads slowly holds up nobody.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_page(scope["path"]):
            await self.app(scope, receive, send)
            return
        has_turn: bool = await self._turns.acquire()

        def end_turn() -> None:
            nonlocal has_turn
            if has_turn:
                has_turn = False
                self._turns.release()

        async def sent(message: Message) -> None:
            end_turn()
            await send(message)

        try:
            await self.app(scope, receive, sent)
        finally:
            end_turn()


def _is_page(path: str) -> bool:
    return path == "/" or path.startswith(PAGES)
