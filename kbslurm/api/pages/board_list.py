"""The start page's boards: their rows as they are now, their submissions counted once for everybody after each event.

Counting a million submissions takes a tenth of a second, and nothing but an event changes how many there are.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kbslurm.api.context import Context
from kbslurm.api.lookup import may_see_board
from kbslurm.domain.run import EventId
from kbslurm.store.views import Board, Person

if TYPE_CHECKING:
    from kbslurm.store.postgres import PostgresStore


class BoardList:
    """For any thread. Whoever comes while it counts waits for that count, or for the one after it."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._upto: EventId | None = None
        self._counts: Mapping[int, int] = {}

    def now(self) -> Sequence[Board]:
        """Every board that isn't deleted, newest first, with its count."""
        boards, counts = self._store.boards.all(counted=False), self._counted()
        return [replace(board, submissions=counts.get(board.id, 0)) for board in boards]

    def _counted(self) -> Mapping[int, int]:
        with self._lock:
            last = self._store.events.last()
            if last != self._upto:
                self._counts, self._upto = self._store.boards.submissions(), last
            return self._counts


def seen_boards(context: Context, listed: BoardList, person: Person | None) -> list[Board]:
    """Those that this person, or whoever isn't signed in, may see."""
    mine = context.store.invites.boards_of(person.id) if person else frozenset()
    return [board for board in listed.now() if may_see_board(board, person, mine)]
