"""What those who have a board open are sent: looked up once for all of them, and handed out a few at a time.

A lost wake-up costs one heartbeat: every stream then compares what its page shows with what is known here, and each
board that is open anywhere is looked at every `PULSE_S` without any wake-up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from kbslurm.api.context import Context
from kbslurm.api.listener import NEWS
from kbslurm.api.pages.boards.board_views import BoardViews, Found, Place
from kbslurm.errors import KbslurmError, NotFound
from kbslurm.observe.logs import teller

tell = teller("api")
PULSE_S = 5.0
QUIET_S = 1.0  # an open page is sent at most one change in this time
AT_A_TIME, PAUSE_S = 4, 0.0025  # 500 readers take half a second, and other calls come in between


class Channel:
    """One page of a board that somebody has open. `found` is what was last seen of it, if anything; `is_gone`: there is
    no such board any more."""

    def __init__(self) -> None:
        self.found: Found | None = None
        self.is_gone = False
        self.rings: set[asyncio.Event] = set()
        self.tending: asyncio.Task[None] | None = None


class BoardNews:
    """The channels of all boards that are open somewhere. For coroutines of one loop."""

    def __init__(self, context: Context, views: BoardViews) -> None:
        self._context, self._views = context, views
        self._channels: dict[Place, Channel] = {}

    @contextmanager
    def follow(self, place: Place, ring: asyncio.Event) -> Iterator[Channel]:
        """Its channel; `ring` is set whenever something has changed there."""
        channel = self._channels.setdefault(place, Channel())
        channel.rings.add(ring)
        if channel.tending is None:
            channel.tending = asyncio.create_task(self._tend(place, channel))
        try:
            yield channel
        finally:
            channel.rings.discard(ring)
            if not channel.rings:
                channel.tending.cancel()
                if self._channels.get(place) is channel:
                    del self._channels[place]

    async def _tend(self, place: Place, channel: Channel) -> None:
        listener = self._context.listener
        with listener.follow(NEWS) as ring:
            while not listener.is_over:
                if await self._has_changed(place, channel):
                    await _hand_out(channel)
                await asyncio.sleep(QUIET_S)
                await listener.rest(ring, PULSE_S)

    async def _has_changed(self, place: Place, channel: Channel) -> bool:
        try:
            found = await self._views.now(place)
            _ = found.drawn
        except NotFound:
            channel.is_gone = True
            return True
        except KbslurmError as error:
            self._context.metrics.met(error)  # the next look may do better
            return False
        except Exception as error:  # noqa: BLE001 - one look that failed mustn't end the news of everybody who reads this
            self._context.metrics.met(error)
            tell("a look at a board failed", level="error", board=place.board, error=repr(error))
            return False
        before, channel.found = channel.found, found
        return found != before


async def _hand_out(channel: Channel) -> None:
    for n, ring in enumerate(list(channel.rings), 1):
        ring.set()
        if n % AT_A_TIME == 0:
            await asyncio.sleep(PAUSE_S)
