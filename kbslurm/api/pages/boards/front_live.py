"""The start page's stream: that its cards have changed, to whoever has it open; the page is fetched again.

One look at the boards is for all readers. Those who aren't signed in share one page, which is drawn and compressed
once; what the others see is asked again only when a board has moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from kbslurm.api import sessions
from kbslurm.api.context import Context
from kbslurm.api.door import look_in_turn
from kbslurm.api.pages.boards.front import Drawn, Now, Own, front_of
from kbslurm.api.pages.live import HEARTBEAT_S, LastEvent, Seen, beginning, moved, stream_of
from kbslurm.api.pages.visitors import Visitors
from kbslurm.errors import KbslurmError

QUIET_S = 4.0  # an open page is told of at most one change in this time


def front_stream(router: APIRouter, context: Context, visitors: Visitors, now: Now) -> None:
    @router.get("/live/-/front")
    async def front(request: Request, seen: Seen = "", last_event_id: LastEvent = None) -> StreamingResponse:
        """A short event when the reader's start page shows something else than it did."""
        look, is_known = look_in_turn(context, request), sessions.secret_of(request) is not None

        def own(drawn: Drawn) -> Own | None:
            return front_of(context, visitors, request, drawn)

        async def version(drawn: Drawn) -> str:
            mine = await look(lambda: own(drawn)) if is_known else None
            return drawn.version if mine is None else mine.version

        drawn = await now()
        shown = last_event_id or seen or await version(drawn)
        return stream_of(_changes(context, now, version, shown))


async def _changes(
    context: Context, now: Now, version: Callable[[Drawn], Awaitable[str]], shown: str
) -> AsyncIterator[str]:
    known: Drawn | None = None
    with context.listener.follow() as ring:
        yield beginning()
        while not context.listener.is_over:
            try:
                drawn = await now()
                told = shown if drawn is known else await version(drawn)
            except KbslurmError as error:
                context.metrics.met(error)
                return  # the reader reconnects
            yield moved(told) if told != shown else ":\n\n"
            known, shown = drawn, told
            await asyncio.sleep(QUIET_S)
            await context.listener.rest(ring, HEARTBEAT_S)
