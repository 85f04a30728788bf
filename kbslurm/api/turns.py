"""Whose request is next: clients take turns, so that one who asks three hundred things delays another's poll by one.

The threads that answer are few, and the queue in front of them would be first come, first served. Addresses take turns,
and within an address its tokens do, since a whole course may share one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

Line = dict[str, deque[asyncio.Future[None]]]


@dataclass(frozen=True, kw_only=True)
class Whose:
    """Whose turn a request takes. `token`: a name for one that was valid lately; `may_be_host`: lately it was a
    host's."""

    address: str
    token: str = ""
    may_be_host: bool = False


class Turns:
    """So many requests at once. `reserved` of the places are kept for hosts; the others are for everyone."""

    def __init__(self, places: int, *, reserved: int = 0) -> None:
        self._everyone, self._hosts = _Places(places - reserved), _Places(reserved)

    @asynccontextmanager
    async def turn(self, whose: Whose) -> AsyncIterator[None]:
        """Wait for a place, hold it in this block."""
        places = self._hosts if whose.may_be_host and not self._everyone.free else self._everyone
        await places.take(whose.address, whose.token)
        try:
            yield
        finally:
            places.give_back()


class _Places:
    def __init__(self, count: int) -> None:
        self.free = count
        self._waiting: dict[str, Line] = {}

    async def take(self, address: str, token: str) -> None:
        if self.free:
            self.free -= 1
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, {}).setdefault(token, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self.give_back()
            else:
                self._forget(address, token, mine)
            raise

    def give_back(self) -> None:
        """The place goes to the next address in turn, there to the next token, there to the oldest request."""
        while self._waiting:
            found = self._next()
            if not found.done():  # else it has just been cancelled
                found.set_result(None)
                return
        self.free += 1

    def _next(self) -> asyncio.Future[None]:
        address = next(iter(self._waiting))
        line = self._waiting.pop(address)
        token = next(iter(line))
        requests = line.pop(token)
        found = requests.popleft()
        if requests:
            line[token] = requests  # again, but last
        if line:
            self._waiting[address] = line
        return found

    def _forget(self, address: str, token: str, mine: asyncio.Future[None]) -> None:
        line = self._waiting.get(address, {})
        requests = line.get(token, deque())
        with suppress(ValueError):
            requests.remove(mine)
        if not requests:
            line.pop(token, None)
        if not line:
            self._waiting.pop(address, None)
