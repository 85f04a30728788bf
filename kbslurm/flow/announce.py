"""Step 8, announce: every event reaches every reader of the feed, at least once, in order. The end of the walk.

A reader remembers the token of the last event that it has handled and resumes from it: the API's streams, the pages and
the bot read this way. Its actions must be keyed by the event's subject, since the event after its token may come twice.
NOTIFY carries no data: a lost one costs one heartbeat and nothing else.
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
    """The events after this one, oldest first; not all of them if there are many."""
    return store.after(after, PAGE)


def as_json(event: Event) -> dict[str, Any]:
    """An event as its readers see it."""
    return {
        "token": f"{MARK}{event.id}",
        "type": event.kind,
        "subject": event.subject,
        "data": dict(event.data),
        "at": event.at.isoformat(),
    }


def place_of(store: Events, token: str | None, mark: str = MARK) -> EventId:
    """Where a reader with this token continues: at the beginning without one, at new events with `now`. Tokens of each
    feed have a mark of their own."""
    if token is None or token == f"{mark}0":
        return EventId(0)
    last = store.last()
    if token == NEWEST:
        return last
    number = token.removeprefix(mark)
    if not token.startswith(mark) or not (number.isascii() and number.isdecimal()) or int(number) > last:
        raise Invalid(f"{token!r} isn't a token of this feed", hint="Start again without since_token.")
    return EventId(int(number))
