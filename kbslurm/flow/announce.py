"""Room 8, announce: every event reaches whoever reads the feed, at least once, in order. The end of the walk.

A reader keeps its own place, the token of the last event that it has dealt with, and comes back with it: the API's
streams, the pages and the bot read in this way. What it does must be keyed by the event's subject, since the event
after its token may come twice. NOTIFY only says "look": a lost one costs a heartbeat's time and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbslurm.domain.run import EventId
from kbslurm.errors import Invalid
from kbslurm.ports import Event, Events

PAGE = 500
MARK = "e"
NEWEST = "now"


def next_events(store: Events, after: EventId) -> Sequence[Event]:
    """What happened after this, the oldest first; not all of it where it is much."""
    return store.after(after, PAGE)


def as_json(event: Event) -> dict[str, Any]:
    """An event as its readers are told of it."""
    return {
        "token": f"{MARK}{event.id}",
        "type": event.kind,
        "subject": event.subject,
        "data": dict(event.data),
        "at": event.at.isoformat(),
    }


def place_of(store: Events, token: str | None) -> EventId:
    """Where a reader with this token goes on: at the beginning without one, at what is to come with `now`."""
    if token is None or token == f"{MARK}0":
        return EventId(0)
    last = store.last()
    if token == NEWEST:
        return last
    number = token.removeprefix(MARK)
    if not token.startswith(MARK) or not (number.isascii() and number.isdecimal()) or int(number) > last:
        raise Invalid(f"{token!r} is no token of this feed", hint="Begin anew without since_token.")
    return EventId(int(number))
