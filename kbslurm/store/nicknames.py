"""Nicknames: as whom people chose to be seen on a board."""

from __future__ import annotations

from datetime import datetime

import psycopg

from kbslurm.domain import contest
from kbslurm.domain.pseudonyms import RENAMED_WINDOW, check_may_rename, outline
from kbslurm.errors import Invalid
from kbslurm.store.connect import Pool
from kbslurm.store.people import person_name
from kbslurm.store.rows import Rows, note_event, or_now, row_of
from kbslurm.store.views import Board, Person

# The names that somebody else has, wherever they may be read.
_OTHERS = """
SELECT name FROM person WHERE id <> %(person)s
UNION SELECT full_name FROM personal_data WHERE person_id <> %(person)s AND full_name IS NOT NULL
UNION SELECT team FROM person WHERE team IS NOT NULL UNION SELECT team FROM roster WHERE team IS NOT NULL
UNION SELECT name FROM nickname WHERE board_id = %(board)s AND person_id <> %(person)s
"""
_CHOOSE = """
INSERT INTO nickname (board_id, person_id, name, outline) VALUES (%(board)s, %(person)s, %(name)s, %(outline)s)
ON CONFLICT (board_id, person_id) DO UPDATE SET name = excluded.name, outline = excluded.outline
"""
# One change of somebody's at a time, so that they are counted.
_NOW = """
SELECT (SELECT name FROM nickname WHERE board_id = %(board)s AND person_id = %(person)s) AS name
FROM person WHERE id = %(person)s FOR NO KEY UPDATE
"""
_CHANGED = """
SELECT at FROM event WHERE subject = 'board:' || %(board)s AND kind = 'board.nickname'
    AND (data ->> 'person')::bigint = %(person)s AND at > %(since)s
"""


class Nicknames(Rows):
    """Nicknames on boards that have them."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)

    def choose(self, board: Board, person: Person, name: str | None, *, now: datetime | None = None) -> str | None:
        """Give somebody this nickname on a board; None: none any more. Invalid if it could be taken for somebody
        else's name, QuotaSpent if they change it too often."""
        chosen, at = None if name is None else self._checked(board, person, name), or_now(now)
        told = {
            "board": board.id,
            "person": person.id,
            "name": chosen,
            "outline": outline(chosen or ""),
            "since": at - RENAMED_WINDOW,
        }
        try:
            with self._pool.transaction() as connection:
                known = row_of(connection, _NOW, told)
                if known is not None and known["name"] == chosen:
                    return chosen
                if chosen is None:  # at any time: hosts take nicknames away
                    connection.execute(
                        b"DELETE FROM nickname WHERE board_id = %(board)s AND person_id = %(person)s", told
                    )
                else:
                    changed = connection.execute(_CHANGED.encode(), told).fetchall()
                    check_may_rename([row["at"] for row in changed], at)
                    connection.execute(_CHOOSE.encode(), told)
                # Not the name: it would outlive whoever is deleted.
                note_event(connection, "board.nickname", f"board:{board.id}", {"person": person.id}, at)
        except psycopg.errors.UniqueViolation:
            raise _taken(name or "") from None
        return chosen

    def _checked(self, board: Board, person: Person, name: str) -> str:
        if board.names != "nicknames":
            raise Invalid(f"board {board.name} has no nicknames", hint="A host decides that: board edit --names.")
        if board.teams:
            raise Invalid(f"board {board.name} shows teams, by their names", hint="Ask a host to rename your team.")
        chosen = person_name(contest.within("nickname", name, contest.NOTE_CAP))
        mine = outline(chosen)
        found = self._all(_OTHERS, {"person": person.id, "board": board.id})
        if any(outline(row["name"]) == mine for row in found):
            raise _taken(chosen)
        return chosen


def _taken(name: str) -> Invalid:
    return Invalid(f"{name!r} is somebody's name here, or too like one", hint="Choose another nickname.")
