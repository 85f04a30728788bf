"""A board's times: what it does about late submissions, who has an extension, when its standings are frozen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kbslurm.domain.lateness import LatePolicy, checked
from kbslurm.errors import Invalid
from kbslurm.store.boards import Boards
from kbslurm.store.connect import Pool
from kbslurm.store.rows import Rows, note_event, or_now
from kbslurm.store.views import Board

_LATE = """
UPDATE leaderboard SET late_until = %(until)s, late_grace_s = %(grace_s)s, late_percent = %(percent)s,
    late_per = %(per)s, slip_days = %(slip_days)s
WHERE id = %(id)s RETURNING id
"""

_EXTENSIONS = """
SELECT p.name AS person, NULL::text AS section, e.deadline_at FROM extension e JOIN person p ON p.id = e.person_id
WHERE e.board_id = %(board)s
UNION ALL
SELECT NULL, x.section, x.deadline_at FROM section_extension x WHERE x.board_id = %(board)s
ORDER BY deadline_at, person, section
"""


@dataclass(frozen=True, kw_only=True)
class Extension:
    """A later deadline on a board, of one person or of a section."""

    person: str | None
    section: str | None
    deadline_at: datetime


class Times(Rows):
    """Late policies, extensions of sections, freezes. A person's extension is in `limits`."""

    def __init__(self, pool: Pool, boards: Boards) -> None:
        super().__init__(pool)
        self._boards = boards

    def set_late(self, board: str, policy: LatePolicy, *, by: str, now: datetime | None = None) -> None:
        """What the board does from now on about submissions after the deadline. Penalties are computed when grades
        are, so they hold for earlier submissions too."""
        held = self._boards.get(board, counted=False)
        checked(policy, held.deadline_at, held.zone)
        told = {
            "until": policy.until, "grace_s": policy.grace_s, "percent": policy.percent, "per": policy.per,
            "slip_days": policy.slip_days,
        }  # fmt: skip
        said = {**told, "until": None if policy.until is None else policy.until.isoformat()}
        self._change("board", _LATE, {"id": held.id, **told}, (by, "late", f"board:{held.id}", said), now)

    def extensions(self, board: Board) -> list[Extension]:
        """Every extension on this board, the earliest first."""
        return [Extension(**row) for row in self._all(_EXTENSIONS, {"board": board.id})]

    def sections(self, board: Board) -> list[str]:
        """The sections in the board's course, as they are written."""
        found = self._all(
            "SELECT min(r.section) AS section FROM roster r JOIN leaderboard b ON b.course = r.course"
            " WHERE b.id = %(board)s AND r.section IS NOT NULL GROUP BY lower(r.section) ORDER BY 1",
            {"board": board.id},
        )
        return [row["section"] for row in found]

    def extend_section(
        self, board: str, section: str, deadline_at: datetime | None, *, by: str, now: datetime | None = None
    ) -> None:
        """Give everybody in this section of the board's course until then; None removes it."""
        held = self._boards.get(board, counted=False)
        told = {"board": held.id, "section": section, "deadline_at": deadline_at}
        statement = (
            b"DELETE FROM section_extension WHERE board_id = %(board)s AND section = lower(%(section)s)"
            if deadline_at is None
            else b"INSERT INTO section_extension (board_id, section, deadline_at)"
            b" VALUES (%(board)s, lower(%(section)s), %(deadline_at)s)"
            b" ON CONFLICT (board_id, section) DO UPDATE SET deadline_at = excluded.deadline_at"
        )
        said = {"section": section, "deadline_at": deadline_at.isoformat() if deadline_at else None, "by": by}
        with self._pool.transaction() as connection:
            connection.execute(statement, told)
            note_event(connection, "staff.extend", f"board:{held.id}", said, or_now(now))

    def freeze(self, board: str, at: datetime, *, by: str, now: datetime | None = None) -> None:
        """Show standings as of that moment from then on. Invalid if they are frozen, or will be, already."""
        held = self._boards.get(board, counted=False)
        changed = self._change(
            "board",
            "UPDATE leaderboard SET frozen_at = %(at)s WHERE id = %(id)s AND frozen_at IS NULL RETURNING id",
            {"id": held.id, "at": at},
            (by, "freeze", f"board:{held.id}", {"at": at.isoformat()}),
            now,
            required=False,
        )
        if not changed:
            raise Invalid(
                f"board {held.name} has a freeze already",
                hint=f"End it first: kbslurm board unfreeze {held.name}",
            )

    def unfreeze(self, board: str, *, by: str, now: datetime | None = None) -> None:
        """Show everything again."""
        held = self._boards.get(board, counted=False)
        changed = self._change(
            "board",
            "UPDATE leaderboard SET frozen_at = NULL WHERE id = %(id)s AND frozen_at IS NOT NULL RETURNING id",
            {"id": held.id},
            (by, "unfreeze", f"board:{held.id}", {}),
            now,
            required=False,
        )
        if not changed:
            raise Invalid(f"board {held.name} isn't frozen")
