"""Pages take turns, so that a crowd of browsers doesn't keep clients that poll waiting."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

AT_ONCE = 8  # half of the threads: the other half is for everybody else
BOARDS_AT_ONCE = 32  # these share their looks at the database
BOARDS, OTHERS = "/board/", "/problem/"


class PagesInTurn:
    """Around the app: a few pages are made at a time, in the order in which they were asked for.

    Everything else passes: it waits for a few pages at most, however many have been asked for. A turn ends when the
    answer begins, so a browser that reads slowly holds up nobody.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._boards, self._others = asyncio.Semaphore(BOARDS_AT_ONCE), asyncio.Semaphore(AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        turns = self._turns_of(scope["path"]) if scope["type"] == "http" else None
        if turns is None:
            await self.app(scope, receive, send)
            return
        has_turn: bool = await turns.acquire()

        def end_turn() -> None:
            nonlocal has_turn
            if has_turn:
                has_turn = False
                turns.release()

        async def sent(message: Message) -> None:
            end_turn()
            await send(message)

        try:
            await self.app(scope, receive, sent)
        finally:
            end_turn()

    def _turns_of(self, path: str) -> asyncio.Semaphore | None:
        if path.startswith(BOARDS):
            return self._boards
        return self._others if path == "/" or path.startswith(OTHERS) else None
