"""Which of the requests that have just arrived is taken up next: a few in each turn of the event loop, pages last.

Reading a request's headers and starting its answer takes a millisecond. Where five hundred arrive together, whoever
comes after them would wait for all of that; so what arrives is only looked at here, and the rest of it waits its turn.
Pages come after everything else and are made a few at a time, and within each kind addresses take turns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

A_TURN = 4  # requests that are taken up in one turn of the loop
PAGES = 4  # that are being made at the same time
_PAGES = tuple(method + path for method in (b"GET ", b"HEAD ") for path in (b"/board/", b"/problem/", b"/ ", b"/?"))


class Guest(Protocol):
    """A connection on which a request has arrived."""

    @property
    def peer(self) -> str:
        """Whose it is."""

    def enter(self) -> bool:
        """Take up the request. Whether its answer is now being made."""


class Entrance:
    """For one event loop."""

    def __init__(self) -> None:
        self._small, self._pages = _Lines(), _Lines()
        self._kinds: dict[Guest, _Lines] = {}
        self._made: set[Guest] = set()
        self._left = A_TURN
        self._next: asyncio.Handle | None = None

    def come(self, guest: Guest, beginning: bytes) -> bool:
        """A request has arrived that begins so. It is taken up now or, False, later."""
        if guest in self._kinds:
            return False
        kind = self._pages if beginning.startswith(_PAGES) else self._small
        if self._left > 0 and not kind.waiting and (kind is self._small or self._has_room):
            self._enter(guest, kind)
            return True
        self._kinds[guest] = kind
        kind.add(guest)
        self._go_on()
        return False

    def leave(self, guest: Guest) -> None:
        """Its answer has begun, or its connection is over. Safe to repeat."""
        if (kind := self._kinds.pop(guest, None)) is not None:
            kind.remove(guest)
        if guest in self._made:
            self._made.discard(guest)
            if self._pages.waiting:
                self._go_on()

    def let_all_in(self) -> None:
        """Take up everything that waits: nothing more will be."""
        for kind in (self._small, self._pages):
            while kind.waiting:
                self._enter_next(kind)

    @property
    def _has_room(self) -> bool:
        return len(self._made) < PAGES

    def _enter_next(self, kind: _Lines) -> None:
        guest = kind.next()
        del self._kinds[guest]
        self._enter(guest, kind)

    def _enter(self, guest: Guest, kind: _Lines) -> None:
        self._left -= 1
        if kind is self._pages:
            self._made.add(guest)
        if not guest.enter():
            self._made.discard(guest)
        self._go_on()

    def _go_on(self) -> None:
        if self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._next, self._left = None, A_TURN
        while self._left > 0 and self._small.waiting:
            self._enter_next(self._small)
        if self._pages.waiting and self._has_room:  # one, however many polls there are
            self._enter_next(self._pages)


class _Lines:
    """Guests who wait, in turns by their address."""

    def __init__(self) -> None:
        self.waiting = 0
        self._lines: dict[str, deque[Guest]] = {}

    def add(self, guest: Guest) -> None:
        self._lines.setdefault(guest.peer, deque()).append(guest)
        self.waiting += 1

    def next(self) -> Guest:
        peer = next(iter(self._lines))
        line = self._lines.pop(peer)
        guest = line.popleft()
        if line:
            self._lines[peer] = line  # again, but last
        self.waiting -= 1
        return guest

    def remove(self, guest: Guest) -> None:
        line = self._lines[guest.peer]
        line.remove(guest)
        self.waiting -= 1
        if not line:
            del self._lines[guest.peer]
