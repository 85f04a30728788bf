"""Invitations to closed boards: codes that each open some boards to one person."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from datetime import datetime

import psycopg

from kbslurm.domain import policy
from kbslurm.domain.run import PersonId
from kbslurm.errors import Invalid, NotFound
from kbslurm.store.boards import Boards
from kbslurm.store.connect import Pool
from kbslurm.store.people import person_name
from kbslurm.store.rows import Rows, note_event, or_now
from kbslurm.store.views import Invite

# Unambiguous letters and digits, in groups that can be read out.
ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"

CODE_GROUPS, CODE_LETTERS = 3, 4
# Who may see a private board.
_MEMBERS = """
SELECT ib.board_id, i.person_id FROM invite_board ib JOIN invite i ON i.id = ib.invite_id
WHERE i.person_id IS NOT NULL AND i.revoked_at IS NULL
UNION ALL SELECT b.id, r.person_id FROM roster r JOIN leaderboard b ON b.course = r.course
UNION ALL SELECT h.board_id, h.person_id FROM board_role h
"""


class Invites(Rows):
    """Codes, and who claimed them."""

    def __init__(self, pool: Pool, boards: Boards) -> None:
        super().__init__(pool)
        self._boards = boards

    def make(
        self, boards: Sequence[str], count: int, *, by: str, newcomers: bool = False, now: datetime | None = None
    ) -> tuple[list[str], list[str]]:
        """(the boards' names, new codes): each code gives the one person who claims it access to all of these
        boards. `newcomers`: whoever has no account may get one by it."""
        policy.check_invites(boards, count)
        held = [self._boards.get(name) for name in dict.fromkeys(boards)]
        codes, at = [_code() for _ in range(count)], or_now(now)
        told = {"codes": codes, "boards": [board.id for board in held], "newcomers": newcomers, "now": at}
        with self._pool.transaction() as connection:
            connection.execute(
                b"WITH made AS (INSERT INTO invite (code, newcomers, created_at)"
                b" SELECT unnest(%(codes)s::text[]), %(newcomers)s, %(now)s"
                b" RETURNING id) INSERT INTO invite_board (invite_id, board_id)"
                b" SELECT made.id, b.id FROM made, unnest(%(boards)s::bigint[]) AS b(id)",
                told,
            )
            for board in held:
                note_event(
                    connection,
                    "staff.invite",
                    f"board:{board.id}",
                    {"count": count, "newcomers": newcomers, "by": by},
                    at,
                )
        return [board.name for board in held], codes

    def of_board(self, board: str) -> list[Invite]:
        """The invitations to this board that weren't revoked, oldest first."""
        found = self._all(
            "SELECT i.code, i.person_id, p.name AS person, i.claimed_at, i.created_at"
            " FROM invite i JOIN invite_board ib ON ib.invite_id = i.id LEFT JOIN person p ON p.id = i.person_id"
            " WHERE ib.board_id = %(board)s AND i.revoked_at IS NULL ORDER BY i.id",
            {"board": self._boards.get(board).id},
        )
        return [Invite(**row) for row in found]

    def is_for_newcomers(self, code: str) -> bool:
        """Whether it makes an account for somebody new: nobody has claimed it, and it wasn't revoked."""
        return bool(
            self._all(
                "SELECT 1 FROM invite WHERE code = %(code)s AND newcomers AND person_id IS NULL AND revoked_at IS NULL",
                {"code": code.strip().upper()},
            )
        )

    def newcomer(self, code: str, name: str, *, now: datetime | None = None) -> PersonId | None:
        """A new person of this name, who claims the invitation; None unless it is open. Invalid if the name isn't valid
        or is somebody's, and then nothing has changed."""
        at, known = or_now(now), person_name(name)
        try:
            with self._pool.transaction() as connection:
                found = connection.execute(
                    b"SELECT id FROM invite WHERE code = %(code)s AND newcomers AND person_id IS NULL"
                    b" AND revoked_at IS NULL FOR UPDATE",
                    {"code": code.strip().upper()},
                ).fetchone()
                if found is None:
                    return None
                made = connection.execute(
                    b"INSERT INTO person (name, role, created_at) VALUES (%(name)s, 'participant', %(now)s)"
                    b" RETURNING id",
                    {"name": known, "now": at},
                ).fetchone()
                assert made is not None
                connection.execute(
                    b"UPDATE invite SET person_id = %(person)s, claimed_at = %(now)s WHERE id = %(invite)s",
                    {"person": made["id"], "now": at, "invite": found["id"]},
                )
                note_event(connection, "person.joined", f"person:{made['id']}", {"invite": found["id"]}, at)
        except psycopg.errors.UniqueViolation:
            raise Invalid(
                f"there is already a person {known!r}",
                hint="Join under another name (kbslurm join CODE --name …); if that is you, sign in first.",
            ) from None
        return PersonId(made["id"])

    def claim(self, code: str, person: PersonId, *, now: datetime | None = None) -> tuple[list[str], bool]:
        """The boards that are open to this person from now on, and whether they were by this invitation before."""
        at = or_now(now)
        with self._pool.transaction() as connection:
            found = connection.execute(
                b"SELECT id, person_id, revoked_at FROM invite WHERE code = %(code)s FOR UPDATE",
                {"code": code.strip().upper()},
            ).fetchone()
            if found is None:
                raise NotFound("invitation", code)
            held = {"invite": found["id"], "person": person, "now": at}
            revoked = found["revoked_at"] is not None
            is_new = policy.check_claim(code, revoked=revoked, claimed_by=found["person_id"], person=person)
            if is_new:
                connection.execute(
                    b"UPDATE invite SET person_id = %(person)s, claimed_at = %(now)s WHERE id = %(invite)s", held
                )
                note_event(connection, "person.joined", f"person:{person}", {"invite": found["id"]}, at)
            names = connection.execute(
                b"SELECT b.name FROM invite_board ib JOIN leaderboard b ON b.id = ib.board_id"
                b" WHERE ib.invite_id = %(invite)s AND b.deleted_at IS NULL ORDER BY b.name",
                held,
            ).fetchall()
        return [row["name"] for row in names], not is_new

    def revoke(self, code: str, *, by: str, now: datetime | None = None) -> bool:
        """Revoke an invitation and the access of the person who claimed it; returns whether it had been claimed."""
        at = or_now(now)
        with self._pool.transaction() as connection:
            found = connection.execute(
                b"UPDATE invite SET revoked_at = %(now)s WHERE code = %(code)s AND revoked_at IS NULL"
                b" RETURNING id, person_id",
                {"code": code.strip().upper(), "now": at},
            ).fetchone()
            if found is None:
                raise NotFound("invitation", code)
            claimed = found["person_id"] is not None
            note_event(
                connection, "staff.revoke_invite", f"invite:{found['id']}", {"was_claimed": claimed, "by": by}, at
            )
        return claimed

    def boards_of(self, person: PersonId) -> frozenset[int]:
        """The boards that this person may see where they are private: by an invitation, a course's roster or a role."""
        found = self._all(
            f"SELECT DISTINCT board_id FROM ({_MEMBERS}) m WHERE person_id = %(person)s", {"person": person}
        )
        return frozenset(row["board_id"] for row in found)

    def members_of(self, boards: Collection[int]) -> dict[int, frozenset[PersonId]]:
        """The same, for each of these boards."""
        found = self._all(
            f"SELECT board_id, array_agg(DISTINCT person_id) AS people FROM ({_MEMBERS}) m"
            " WHERE board_id = ANY(%(boards)s) GROUP BY board_id",
            {"boards": list(boards)},
        )
        members = {row["board_id"]: frozenset(row["people"]) for row in found}
        return {board: members.get(board, frozenset()) for board in boards}


def _code() -> str:
    groups = ("".join(secrets.choice(ALPHABET) for _ in range(CODE_LETTERS)) for _ in range(CODE_GROUPS))
    return "-".join(groups)
