"""Room 8, announce: events reach whoever follows, at least once each, in order. The end of the walk.

A reader has a name and a cursor in the database. Its notifications must be keyed by the event's subject: the last one
may come twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kbslurm.domain.run import EventId
from kbslurm.ports import Event, Events

PAGE = 500
LOOK_EVERY_S = 5.0


def feed(store: Events, reader: str, limit: int = PAGE) -> Iterator[Event]:
    """The next events for this reader. An event counts as announced when the reader comes back for the one after it."""
    handled: EventId | None = None
    try:
        for event in store.after(store.cursor(reader), limit):
            yield event
            handled = event.id
    finally:
        if handled is not None:
            store.move_cursor(reader, handled)


def follow(
    store: Events, after: EventId, is_over: Callable[[], bool], *, look_every_s: float = LOOK_EVERY_S
) -> Iterator[Event]:
    """Every event after this one, as it happens, until `is_over`. Keeps no cursor: for somebody who only watches."""
    while True:
        over = is_over()
        events = store.after(after, PAGE)
        yield from events
        if events:
            after = events[-1].id
        elif over:
            return
        else:
            store.wait(look_every_s)
