"""A board's rows for its archive, all as of one moment, and which archives were written."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kbslurm.domain import access
from kbslurm.domain.board import ranked
from kbslurm.domain.drift import SHADOW
from kbslurm.domain.finals import FINAL
from kbslurm.domain.measure import CALIBRATION
from kbslurm.domain.run import PersonId, SubmissionId
from kbslurm.store.connect import Connection, Pool
from kbslurm.store.deadlines import late_s
from kbslurm.store.final_scores import BINDS
from kbslurm.store.grades import STUDENTS
from kbslurm.store.rows import Rows, note_event, or_now
from kbslurm.store.standings import entries_in
from kbslurm.store.views import Board

AT_ONCE = 100  # rows that one fetch brings: a report's detail can be large

_OWN = f"'{CALIBRATION}', '{FINAL}', '{SHADOW}'"
# Of what isn't private: nothing after a freeze, nobody banned, nothing taken back unless it was fixed before; and what
# the service itself has measured for scores.
_S = f"""s.board_id = %(board)s AND (%(private)s OR p.banned_at IS NULL AND (
    (%(until)s::timestamptz IS NULL OR s.accepted_at <= %(until)s)
        AND (s.removed_at IS NULL OR s.via IN ('{CALIBRATION}', '{FINAL}'))
    OR EXISTS (SELECT 1 FROM fixed_place x JOIN run fr ON fr.id = x.run_id
        WHERE x.finalisation_id = %(finalisation)s AND fr.submission_id = s.id)))"""
_OF_RUN = f"""JOIN submission s ON s.id = r.submission_id JOIN person p ON p.id = s.person_id
JOIN leaderboard b ON b.id = s.board_id WHERE {_S} ORDER BY r.id"""

_STATEMENTS: Mapping[str, str] = {
    "problems": """
SELECT v.id AS problem_version, p.name AS problem, v.digest, v.created_at, v.content
FROM problem_version v JOIN problem p ON p.id = v.problem_id
WHERE v.id = (SELECT problem_version_id FROM leaderboard WHERE id = %(board)s) OR EXISTS (
    SELECT 1 FROM submission s JOIN run r ON r.submission_id = s.id
    WHERE s.board_id = %(board)s AND r.problem_version_id = v.id)
ORDER BY v.id""",
    "people": f"""
SELECT person_id, name, true AS student, banned, full_name, email, student_id, section, team, side, extra
FROM ({STUDENTS}) students WHERE %(private)s OR NOT banned AND (
    (SELECT course FROM leaderboard WHERE id = %(board)s) IS NOT NULL OR EXISTS (
        SELECT 1 FROM submission s JOIN person p ON p.id = s.person_id WHERE s.person_id = students.person_id AND {_S}))
UNION ALL
SELECT p.id, p.name, false, p.banned_at IS NOT NULL, d.full_name, d.email, d.student_id, NULL, p.team,
    'person:' || p.id, coalesce(d.extra, '{{}}')
FROM person p LEFT JOIN personal_data d ON d.person_id = p.id
WHERE EXISTS (SELECT 1 FROM submission s WHERE s.person_id = p.id AND {_S})
    AND p.id NOT IN (SELECT person_id FROM ({STUDENTS}) students)""",
    "extensions": """
SELECT e.person_id, NULL::text AS section, e.deadline_at FROM extension e JOIN person p ON p.id = e.person_id
WHERE e.board_id = %(board)s AND (%(private)s OR p.banned_at IS NULL)
UNION ALL
SELECT NULL, x.section, x.deadline_at FROM section_extension x WHERE x.board_id = %(board)s AND %(private)s""",
    "calibrations": """
SELECT c.problem_version_id AS problem_version, c.gpu, c.run_id AS run, c.b_ref_s, c.at FROM calibration c
WHERE c.board_id = %(board)s ORDER BY c.problem_version_id, c.gpu""",
    "submissions": f"""
SELECT s.id AS submission, s.person_id, CASE WHEN b.teams THEN s.team END AS team, s.mode, s.file_name, s.sha256,
    s.via, s.accepted_at, s.removed_at, {late_s("s")} AS late_s,
    CASE WHEN s.source <> '' AND %(private)s THEN s.source END AS source
FROM submission s JOIN person p ON p.id = s.person_id JOIN leaderboard b ON b.id = s.board_id
WHERE {_S} ORDER BY s.id""",
    "runs": f"""
SELECT r.id AS run, s.id AS submission, r.problem_version_id AS problem_version, r.gpu, r.state, r.counts, r.may_rank,
    r.second, r.rejudging_id AS rejudging, r.queued_at, r.ended_at, r.reason
FROM run r {_OF_RUN}""",
    "attempts": f"""
SELECT r.id AS run, a.number AS attempt, a.backend AS place, a.gpu, a.state, a.ending, a.node, a.opened_at,
    a.started_at, a.ended_at, coalesce(a.telemetry ->> 'harness_digest', '') AS harness_digest, a.reason, a.telemetry
FROM attempt a JOIN run r ON r.id = a.run_id {_OF_RUN}, a.number""",
    "verdicts": f"""
SELECT r.id AS run, a.number AS attempt, a.ranks AS right_class, v.name AS verdict, v.reason, v.score_s, v.low_s,
    v.high_s, v.isolation, v.ranked, v.at, v.detail - '{{token,nonce}}'::text[] AS detail
FROM verdict v JOIN run r ON r.id = v.run_id JOIN attempt a ON a.id = v.attempt_id {_OF_RUN}""",
    "samples": f"""
SELECT r.id AS run, x.data FROM raw_samples x JOIN verdict v ON v.attempt_id = x.attempt_id
JOIN run r ON r.id = v.run_id {_OF_RUN}""",
    "finals": """
SELECT f.id AS final, f.problem_version_id AS problem_version, f.gpu, f.run_id AS run, f.state, f.created_at,
    f.decided_at, ARRAY(SELECT x.run_id FROM final_rival x WHERE x.final_id = f.id ORDER BY x.place) AS rivals
FROM final f WHERE f.board_id = %(board)s AND (%(until)s::timestamptz IS NULL OR f.decided_at <= %(until)s)
ORDER BY f.id""",
    # Whose it is, where it binds them.
    "final_scores": f"""
SELECT x.run_id AS run, x.final_id AS final, x.score_s, x.low_s, x.high_s,
    CASE WHEN {BINDS} THEN ft.person_id END AS person_id, CASE WHEN b.teams AND {BINDS} THEN ft.team END AS team
FROM final_score x JOIN final f ON f.id = x.final_id JOIN leaderboard b ON b.id = f.board_id
JOIN run fr ON fr.id = x.run_id JOIN verdict fv ON fv.run_id = fr.id
JOIN submission ft ON ft.id = fr.submission_id JOIN person fp ON fp.id = ft.person_id
WHERE f.board_id = %(board)s AND (%(until)s::timestamptz IS NULL OR f.decided_at <= %(until)s)
ORDER BY x.run_id, x.final_id""",
    "fixed_places": """
SELECT x.run_id AS run, x.score_s, x.low_s, x.high_s FROM fixed_place x
WHERE x.finalisation_id = %(finalisation)s ORDER BY x.run_id""",
}

_EARLIER = """
SELECT a.id, b.name AS leaderboard, a.private, a.place, a.written_by, a.at
FROM archive a JOIN leaderboard b ON b.id = a.board_id
WHERE EXISTS (SELECT 1 FROM submission s WHERE s.board_id = b.id AND s.person_id = %(person)s
        AND s.accepted_at <= a.at)
    OR EXISTS (SELECT 1 FROM roster r WHERE r.course = b.course AND r.person_id = %(person)s AND r.added_at <= a.at)
ORDER BY a.id
"""


@dataclass(frozen=True, kw_only=True)
class Archive:
    """An archive that was written: where, by whom, and whether it has everything."""

    id: int
    leaderboard: str
    private: bool
    place: str
    written_by: str
    at: datetime


class Archives(Rows):
    """What goes into archives, and which there are."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)

    def rows(self, board: Board, *, private: bool) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
        """Each table with its rows, read a few at a time; all as of one moment."""
        told = {
            "board": board.id,
            "private": private,
            "until": access.shown_until(board.frozen_at, host=private),
            "finalisation": board.finalisation,
        }
        with self._pool.transaction() as connection:
            connection.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            for table, statement in _STATEMENTS.items():
                found = _read(connection, table, statement, told)
                yield table, _launches(found) if table == "samples" else found
            yield "standings", _standings(connection, board, private=private)

    def work_of(self, board: int, *, person: PersonId | None, team: str | None) -> list[SubmissionId]:
        """The numbers of what this person, or team, has submitted to a board, oldest first; deleted ones too."""
        found = self._all(
            f"SELECT id FROM submission WHERE board_id = %(board)s AND via NOT IN ({_OWN}) AND CASE"
            " WHEN %(team)s::text IS NULL THEN person_id = %(person)s ELSE team = %(team)s END ORDER BY id",
            {"board": board, "person": person, "team": team},
        )
        return [SubmissionId(row["id"]) for row in found]

    def note(self, board: Board, *, private: bool, place: str, by: str, now: datetime | None = None) -> int:
        """Remember that an archive of this board was written."""
        at = or_now(now)
        with self._pool.transaction() as connection:
            made = connection.execute(
                b"INSERT INTO archive (board_id, private, place, written_by, at)"
                b" VALUES (%(board)s, %(private)s, %(place)s, %(by)s, %(at)s) RETURNING id",
                {"board": board.id, "private": private, "place": place, "by": by, "at": at},
            ).fetchone()
            assert made is not None
            said = {"archive": made["id"], "private": private, "place": place, "by": by}
            note_event(connection, "staff.archive", f"board:{board.id}", said, at)
        return int(made["id"])


def earlier(connection: Connection, person: PersonId | int) -> tuple[Archive, ...]:
    """The archives that may have something of this person."""
    return tuple(Archive(**row) for row in connection.execute(_EARLIER.encode(), {"person": person}))


def _read(connection: Connection, table: str, statement: str, told: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    with connection.cursor(name=f"archive_{table}") as cursor:
        cursor.itersize = AT_ONCE
        cursor.execute(statement.encode(), told)
        for row in cursor:
            yield dict(row)


_NO_LEEWAY: dict[str, list[int]] = {"leeway_ns": []}


def _launches(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row for each launch of a run's raw samples."""
    for row in rows:
        for one in json.loads(zlib.decompress(row["data"])):
            own, base = _NO_LEEWAY | one["own"], one["baseline"] and _NO_LEEWAY | one["baseline"]
            yield {
                "run": row["run"],
                **{name: one[name] for name in ("phase", "index", "launch", "rival")},
                **own,
                **{f"baseline_{name}": None if base is None else base[name] for name in own},
                "alone_ns": one.get("alone_ns", []),
            }


def _standings(connection: Connection, board: Board, *, private: bool) -> Iterator[dict[str, Any]]:
    for gpu in board.gpus:
        for one in ranked(entries_in(connection, board, gpu, live=private)):
            entry = one.entry
            yield {
                "gpu": gpu,
                "rank": one.rank,
                "best_rank": one.best_rank,
                "worst_rank": one.worst_rank,
                "tied_with": list(one.tied_with),
                "ranks": list(one.ranks),
                "person": entry.person,
                "person_id": entry.person_id,
                "team": entry.team,
                "submission": entry.submission_id,
                "run": entry.run_id,
                "score_s": entry.score_s,
                "low_s": entry.low_s,
                "high_s": entry.high_s,
                "submitted_at": entry.at,
            }
