"""When a board's code is published, under which licence, and who agreed to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kbslurm.domain.access import CodeRule
from kbslurm.domain.run import PersonId
from kbslurm.store.connect import Pool
from kbslurm.store.rows import Rows, note_event, or_now

_POLICY = """
SELECT coalesce(c.rule, 'never') AS rule, coalesce(c.licence, '') AS licence, c.since,
    CASE WHEN b.closed_at IS NOT NULL THEN b.closed_at WHEN b.deadline_at IS NOT NULL THEN greatest(
        b.deadline_at, b.late_until,
        (SELECT max(e.deadline_at) FROM extension e WHERE e.board_id = b.id),
        (SELECT max(x.deadline_at) FROM section_extension x WHERE x.board_id = b.id)) END AS over_at,
    ARRAY(SELECT a.person_id FROM code_consent a WHERE a.board_id = b.id) AS consents
FROM leaderboard b LEFT JOIN board_code c ON c.board_id = b.id WHERE b.id = %(board)s
"""
# A rule that stays keeps its moment: what came after it was submitted under it.
_SET = """
INSERT INTO board_code AS c (board_id, rule, licence, since) VALUES (%(board)s, %(rule)s, %(licence)s, %(now)s)
ON CONFLICT (board_id) DO UPDATE SET rule = excluded.rule, licence = excluded.licence,
    since = CASE WHEN (c.rule, c.licence) = (excluded.rule, excluded.licence) THEN c.since ELSE excluded.since END
"""


@dataclass(frozen=True, kw_only=True)
class CodePolicy:
    """A board's rule; `since` when. `over_at`: after which nobody can submit any more; `consents`: who agreed."""

    rule: CodeRule
    licence: str
    since: datetime | None
    over_at: datetime | None
    consents: frozenset[PersonId]


class Publishing(Rows):
    """Publishing code."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)

    def of_board(self, board: int) -> CodePolicy:
        """What holds on this board."""
        found = self._one(_POLICY, {"board": board})
        assert found is not None
        return CodePolicy(**{**found, "consents": frozenset(found["consents"])})

    def set_rule(self, board: int, rule: CodeRule, licence: str, *, by: str, now: datetime | None = None) -> None:
        """Let this rule hold from now on."""
        at = or_now(now)
        with self._pool.transaction() as connection:
            told = {"board": board, "rule": rule, "licence": licence, "now": at}
            connection.execute(_SET.encode(), told)
            note_event(connection, "staff.code", f"board:{board}", {"rule": rule, "licence": licence, "by": by}, at)

    def consent(self, board: int, person: PersonId, *, is_given: bool, now: datetime | None = None) -> None:
        """Somebody agrees that their code on this board is published, or takes that back."""
        told = {"board": board, "person": person, "now": or_now(now)}
        if is_given:
            self._do(
                "INSERT INTO code_consent (board_id, person_id, given_at) VALUES (%(board)s, %(person)s, %(now)s)"
                " ON CONFLICT DO NOTHING",
                told,
            )
        else:
            self._do("DELETE FROM code_consent WHERE board_id = %(board)s AND person_id = %(person)s", told)
