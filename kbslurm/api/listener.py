"""Wakes the followers of events: one thread reads the outbox, any number of coroutines wait for their subject.

A wake-up carries no data: the woken coroutine reads the database. A lost one costs one heartbeat and nothing else.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kbslurm.domain.run import EventId
from kbslurm.errors import KbslurmError
from kbslurm.flow import announce
from kbslurm.observe.logs import teller
from kbslurm.ports import Event

if TYPE_CHECKING:
    from kbslurm.store.postgres import PostgresStore

tell = teller("api.listener")
LOOK_EVERY_S = 2.0
BACK_OFF_S = 1.0
# Subjects other than a submission. Those who have a board open are woken by its news and when rights end.
EVERYTHING, BOARDS, NEWS = 0, -1, -2
# Whoever these are about may have lost a right: every stream checks whether its reader may go on.
ENDS_RIGHTS = frozenset(
    {"staff.ban", "staff.role", "staff.token.revoke", "staff.visibility", "staff.revoke_invite", "staff.delete_board"}
)


class EventListener:
    """Started with the app's loop, closed with it. `follow` is for coroutines of that loop only."""

    def __init__(self, store: PostgresStore, *, met: Callable[[Exception], None] = lambda _: None) -> None:
        self._store, self._met = store, met
        self._followers: dict[int, set[asyncio.Event]] = {}
        self._over = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_over(self) -> bool:
        """Whether the server is stopping: streams end now, and readers reconnect with their last token."""
        return self._over.is_set()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start listening."""
        self._loop = loop
        self._thread = threading.Thread(target=self._listen, name="api-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wake everyone for the last time. Safe to repeat."""
        self._over.set()
        self._call(list(self._followers))

    def join(self) -> None:
        """Wait until the listening thread has released the store."""
        if self._thread is not None:
            self._thread.join(LOOK_EVERY_S + 5)

    @contextmanager
    def follow(self, submission: int = EVERYTHING) -> Iterator[asyncio.Event]:
        """An event that is set whenever something happens to this submission, or to anything if none is given."""
        ring = asyncio.Event()
        self._followers.setdefault(submission, set()).add(ring)
        try:
            yield ring
        finally:
            left = self._followers[submission]
            left.discard(ring)
            if not left:
                del self._followers[submission]

    def followers(self) -> tuple[int, int]:
        """How many followers one submission has, and how many everything has. From any thread."""
        counts = {subject: len(rings) for subject, rings in self._followers.copy().items()}
        counts.pop(NEWS, None)  # they follow for the others
        everything = counts.pop(EVERYTHING, 0) + counts.pop(BOARDS, 0)
        return sum(counts.values()), everything

    async def rest(self, ring: asyncio.Event, seconds: float) -> None:
        """Sleep until it rings or the timeout passes."""
        if not self.is_over:
            try:
                await asyncio.wait_for(ring.wait(), seconds)
            except TimeoutError:
                return
        ring.clear()

    def _listen(self) -> None:
        last: EventId | None = None
        while not self._over.is_set():
            try:
                last = self._look(last)
                self._store.events.wait(LOOK_EVERY_S)
            except KbslurmError as error:
                self._met(error)
                tell("the outbox can't be read", level="warning", why=error.message)
                self._over.wait(BACK_OFF_S)

    def _look(self, last: EventId | None) -> EventId:
        if last is None:
            return self._store.events.last()
        while found := announce.next_events(self._store.events, last):
            ends_rights = any(event.kind in ENDS_RIGHTS for event in found)
            self._call(list(self._followers) if ends_rights else _subjects(found))
            last = found[-1].id
        return last

    def _call(self, subjects: Iterable[int]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ring, set(subjects))

    def _ring(self, subjects: set[int]) -> None:
        for subject in subjects:
            for ring in self._followers.get(subject, ()):
                ring.set()


def _subjects(events: Iterable[Event]) -> set[int]:
    found = {EVERYTHING, NEWS}
    for event in events:
        kind, _, number = event.subject.partition(":")
        said = number if kind == "submission" else event.data.get("submission")
        if str(said).isdecimal():
            found.add(int(str(said)))
    return found
