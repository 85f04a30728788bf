"""Every board with what its standings come to, as the start page shows it: read once for everybody after each event.

After an event only the boards that it may concern are looked at again, and of those the standings cache reads only the
people that it may concern. Nothing here counts submissions, of which there may be a million.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kbslurm.api.context import Context
from kbslurm.api.lookup import may_see_board
from kbslurm.api.standings_cache import StandingsCache
from kbslurm.domain.board import Entry, Ranking
from kbslurm.domain.run import EventId
from kbslurm.errors import NotFound
from kbslurm.store.questions import Announcement
from kbslurm.store.views import Board, Person

FRESH = timedelta(seconds=1)  # what changes without an event: a board's row, written by hand
RECORDS = 24  # of each race, the newest
Side = int | str


@dataclass(frozen=True, kw_only=True)
class Race:
    """A board on one GPU type, as everybody may see it. `is_tied`: the first can't be told from the second. `places`
    are everybody's, undisguised, among `ranked`: nobody is told more of them than their own."""

    gpu: str
    people: int
    first: Entry | None
    second: Entry | None
    is_tied: bool
    records: tuple[Entry, ...]
    places: Mapping[Side, int] = field(repr=False)

    @property
    def ranked(self) -> int:
        return len(self.places)


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A board and its races, one per GPU type."""

    board: Board
    races: tuple[Race, ...]
    announced: Announcement | None = None  # the newest

    @property
    def main(self) -> Race | None:
        """The one with the most people, the first of equals."""
        return max(self.races, key=lambda race: race.people, default=None)


class BoardList:
    """For any thread. Whoever comes while it reads waits for that."""

    def __init__(self, context: Context, standings: StandingsCache) -> None:
        self._context, self._standings = context, standings
        self._lock = threading.Lock()
        self._upto: EventId | None = None
        self._at: datetime | None = None
        self._known: tuple[Listed, ...] = ()

    def now(self) -> Sequence[Listed]:
        """Every board that isn't deleted, newest first; the same object as long as nothing has changed."""
        with self._lock:
            now, last = self._context.clock.now(), self._context.store.events.last()
            is_fresh = self._at is not None and self._at <= now < self._at + FRESH
            if last == self._upto and is_fresh:
                return self._known
            found = self._read(last)
            if found != self._known:
                self._known = found
            self._upto, self._at = last, now
            return self._known

    def _read(self, last: EventId) -> tuple[Listed, ...]:
        store, before = self._context.store, {one.board.id: one for one in self._known}
        stirred = None if self._upto is None else store.standings.stirred(self._upto, last)
        found = []
        for board in store.boards.all(counted=False):
            known = before.get(board.id)
            if known is not None and known.board == board and stirred is not None and board.id not in stirred:
                found.append(known)
                continue
            try:
                races = tuple(self._race(board, gpu) for gpu in board.gpus)
                announced = next(iter(store.questions.announcements(board.id, most=1)), None)
                found.append(Listed(board=board, races=races, announced=announced))
            except NotFound:
                continue  # it has been deleted since
        return tuple(found)

    def _race(self, board: Board, gpu: str) -> Race:
        hidden, rows, records = self._standings.with_undisguised(board, gpu)
        return Race(
            gpu=gpu,
            people=len(rows),
            first=rows.entries[0] if rows else None,
            second=rows.entries[1] if len(rows) > 1 else None,
            is_tied=len(rows) > 1 and rows[0].worst_rank > 1,
            records=tuple(records[-RECORDS:]),
            places=_places(hidden),
        )


def _places(rows: Ranking) -> Mapping[Side, int]:
    return {one.side: n for n, one in enumerate(rows.entries, 1)}


def seen_boards(context: Context, listed: BoardList, person: Person | None) -> list[Listed]:
    """Those that this person, or whoever isn't signed in, may see."""
    mine = context.store.invites.boards_of(person.id) if person else frozenset()
    return [one for one in listed.now() if may_see_board(one.board, person, mine)]
