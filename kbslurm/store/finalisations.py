"""Final standings: fixed by a host, and from then on what the board shows, until a host fixes others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kbslurm.domain.board import Entry
from kbslurm.errors import Invalid
from kbslurm.store.connect import Pool
from kbslurm.store.deadlines import practice
from kbslurm.store.rows import Rows, note_event, or_now, row_of
from kbslurm.store.views import Board

# Of these two acts at once only one finds the board as it was.
_LOCK = "SELECT id FROM leaderboard WHERE id = %(board)s FOR UPDATE"
_NEWEST = "SELECT max(id) AS id FROM finalisation WHERE board_id = %(board)s AND withdrawn_at IS NULL"

_OPEN = f"""
SELECT count(*) AS n FROM run r JOIN submission s ON s.id = r.submission_id JOIN leaderboard b ON b.id = s.board_id
WHERE s.board_id = %(board)s AND s.mode = 'leaderboard' AND s.removed_at IS NULL AND r.ended_at IS NULL
    AND NOT {practice("s")}
"""

_REJUDGED = "SELECT count(*) AS n FROM rejudging WHERE board_id = %(board)s AND state = 'open'"


class Finalisations(Rows):
    """Fix a board's standings, or withdraw that. Nothing is deleted: each act is a row of its own."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)

    def open_runs(self, board: Board) -> int:
        """How many ranked runs of its people haven't ended."""
        found = self._one(_OPEN, {"board": board.id})
        assert found is not None
        return int(found["n"])

    def open_rejudges(self, board: Board) -> int:
        """How many rejudges are neither applied nor cancelled."""
        found = self._one(_REJUDGED, {"board": board.id})
        assert found is not None
        return int(found["n"])

    def fix(
        self, board: Board, places: Sequence[Entry], *, by: str, note: str = "", now: datetime | None = None
    ) -> int:
        """Make these the board's standings; returns the act's number. Invalid if others were fixed meanwhile."""
        at = or_now(now)
        with self._pool.transaction() as connection:
            row_of(connection, _LOCK, {"board": board.id})
            newest = row_of(connection, _NEWEST, {"board": board.id})
            if newest is None or newest["id"] != board.finalisation:
                raise Invalid(f"someone else has just decided on the standings of {board.name}", hint="Look again.")
            made = row_of(
                connection,
                "INSERT INTO finalisation (board_id, decided_by, note, at) VALUES (%(board)s, %(by)s, %(note)s, %(at)s)"
                " RETURNING id",
                {"board": board.id, "by": by, "note": note, "at": at},
            )
            assert made is not None
            for place in places:
                connection.execute(
                    b"INSERT INTO fixed_place (finalisation_id, run_id, score_s, low_s, high_s)"
                    b" VALUES (%(act)s, %(run)s, %(score_s)s, %(low_s)s, %(high_s)s)",
                    {
                        "act": made["id"], "run": place.run_id, "score_s": place.score_s, "low_s": place.low_s,
                        "high_s": place.high_s,
                    },
                )  # fmt: skip
            said = {"finalisation": made["id"], "places": len(places), "note": note, "by": by}
            note_event(connection, "staff.finalise", f"board:{board.id}", said, at)
        return int(made["id"])

    def withdraw(self, board: Board, *, by: str, note: str = "", now: datetime | None = None) -> None:
        """Let the standings follow from the verdicts again."""
        at = or_now(now)
        with self._pool.transaction() as connection:
            row_of(connection, _LOCK, {"board": board.id})
            gone = connection.execute(
                b"UPDATE finalisation SET withdrawn_at = %(at)s WHERE board_id = %(board)s AND withdrawn_at IS NULL"
                b" RETURNING id",
                {"board": board.id, "at": at},
            ).fetchall()
            if not gone:
                raise Invalid(f"the standings of {board.name} aren't final")
            said = {"finalisations": [row["id"] for row in gone], "note": note, "by": by}
            note_event(connection, "staff.unfinalise", f"board:{board.id}", said, at)
