"""How often and until when people may submit to a board: rate limits, quotas, extensions."""

from __future__ import annotations

from datetime import datetime

from kbslurm.domain import policy
from kbslurm.domain.policy import Category
from kbslurm.errors import Invalid, NotFound
from kbslurm.store.boards import Boards
from kbslurm.store.connect import Pool
from kbslurm.store.rows import Rows, note_event, or_now
from kbslurm.store.views import Person, RateLimit

MOST_GPU_S = 1_000_000_000  # per day; the API's model has the same bound


class Limits(Rows):
    """A board's limits, and single people's extensions."""

    def __init__(self, pool: Pool, boards: Boards) -> None:
        super().__init__(pool)
        self._boards = boards

    def set_rate(self, board: str, kind: Category, most: int, *, by: str, now: datetime | None = None) -> RateLimit:
        """Set how many submissions of this category a person may make to this board per hour."""
        held, at = self._boards.get(board), or_now(now)
        told = {"board": held.id, "category": kind, "most": policy.per_hour(most)}
        with self._pool.transaction() as connection:
            connection.execute(
                b"INSERT INTO rate_limit (board_id, category, most_per_hour)"
                b" VALUES (%(board)s, %(category)s, %(most)s)"
                b" ON CONFLICT (board_id, category) DO UPDATE SET most_per_hour = excluded.most_per_hour",
                told,
            )
            note_event(
                connection, "staff.rate_limit", f"board:{held.id}", {"category": kind, "most": most, "by": by}, at
            )
        return RateLimit(board=held.name, category=kind, most_per_hour=most)

    def rates(self, board: str) -> list[RateLimit]:
        """The rate limits of this board."""
        held = self._boards.get(board)
        found = self._all(
            "SELECT category, most_per_hour FROM rate_limit WHERE board_id = %(board)s ORDER BY category",
            {"board": held.id},
        )
        return [RateLimit(board=held.name, **row) for row in found]

    def drop_rate(self, board: str, kind: Category, *, by: str, now: datetime | None = None) -> None:
        """Remove a rate limit. NotFound if there was none."""
        held, at = self._boards.get(board), or_now(now)
        with self._pool.transaction() as connection:
            found = connection.execute(
                b"DELETE FROM rate_limit WHERE board_id = %(board)s AND category = %(category)s RETURNING board_id",
                {"board": held.id, "category": kind},
            ).fetchone()
            if found is None:
                raise NotFound(f"rate limit of board {held.name}", kind)
            note_event(
                connection, "staff.rate_limit", f"board:{held.id}", {"category": kind, "most": None, "by": by}, at
            )

    def set_quota(self, board: str, gpu_s: float | None, *, by: str, now: datetime | None = None) -> None:
        """Set how many GPU-seconds a person may use on this board per day; None: no limit."""
        held, at = self._boards.get(board), or_now(now)
        if gpu_s is not None and not 0 <= gpu_s <= MOST_GPU_S:
            raise Invalid(f"the quota must be between 0 and {MOST_GPU_S:,} GPU-seconds, not {gpu_s:g}")
        statement = (
            b"DELETE FROM quota WHERE board_id = %(board)s"
            if gpu_s is None
            else b"INSERT INTO quota (board_id, gpu_s_per_day) VALUES (%(board)s, %(gpu_s)s)"
            b" ON CONFLICT (board_id) DO UPDATE SET gpu_s_per_day = excluded.gpu_s_per_day"
        )
        with self._pool.transaction() as connection:
            connection.execute(statement, {"board": held.id, "gpu_s": gpu_s})
            note_event(connection, "staff.quota", f"board:{held.id}", {"gpu_s_per_day": gpu_s, "by": by}, at)

    def quota(self, board: int) -> float | None:
        """This board's daily GPU-seconds per person."""
        found = self._one("SELECT gpu_s_per_day FROM quota WHERE board_id = %(board)s", {"board": board})
        return None if found is None else float(found["gpu_s_per_day"])

    def extend(
        self, board: str, person: Person, deadline_at: datetime | None, *, by: str, now: datetime | None = None
    ) -> None:
        """Let this person submit until then; None removes the extension."""
        held, at = self._boards.get(board), or_now(now)
        told = {"board": held.id, "person": person.id, "deadline_at": deadline_at}
        statement = (
            b"DELETE FROM extension WHERE board_id = %(board)s AND person_id = %(person)s"
            if deadline_at is None
            else b"INSERT INTO extension (board_id, person_id, deadline_at)"
            b" VALUES (%(board)s, %(person)s, %(deadline_at)s)"
            b" ON CONFLICT (board_id, person_id) DO UPDATE SET deadline_at = excluded.deadline_at"
        )
        said = {"person": person.id, "deadline_at": deadline_at.isoformat() if deadline_at else None, "by": by}
        with self._pool.transaction() as connection:
            connection.execute(statement, told)
            note_event(connection, "staff.extend", f"board:{held.id}", said, at)
