"""Submissions with their runs, attempts and verdicts, as shown; and deleting them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from psycopg.rows import DictRow

from kbslurm.domain import access, lateness
from kbslurm.domain.run import OpenAttempt, PersonId, RunId, RunState, SubmissionId
from kbslurm.domain.verdict import Verdict
from kbslurm.errors import NotFound, Refused
from kbslurm.store.attempt_rows import ATTEMPT_COLUMNS, LIVE, OPEN_ATTEMPT, attempt_of
from kbslurm.store.deadlines import late_s, practice
from kbslurm.store.rows import Rows, note_event, row_of
from kbslurm.store.views import AttemptView, RunView, SubmissionView

_SUBMISSION = """
SELECT s.id, s.person_id, p.name AS person, s.board_id, b.name AS board, s.mode, s.file_name, s.sha256, s.via,
    s.by_staff, s.accepted_at, s.removed_at, b.frozen_at, b.names, b.standings, {late} AS late_s,
    {practice} AS practice, CASE WHEN b.teams THEN s.team END AS team,
    {source}
FROM submission s JOIN person p ON p.id = s.person_id JOIN leaderboard b ON b.id = s.board_id
"""

_RUNS = """
SELECT r.id, r.submission_id, r.gpu, r.state, r.problem_version_id, r.attempts, r.queued_at, r.fair_at, r.cancel_at,
    r.ended_at, r.reason, r.second, r.held, r.broke_off, f.score_s AS first_score_s,
    (SELECT max(m.measurement) FROM run m WHERE m.submission_id = r.submission_id AND m.gpu = r.gpu
        AND m.problem_version_id = r.problem_version_id AND m.rejudging_id = r.rejudging_id
        AND m.state <> 'cancelled') AS measurements,
    v.name AS verdict, v.reason AS verdict_reason, v.score_s, v.low_s, v.high_s, v.isolation,
    v.ranked, v.at AS verdict_at, {detail} AS detail
FROM run r LEFT JOIN verdict v ON v.run_id = r.id
LEFT JOIN LATERAL (
    SELECT fv.score_s FROM run fr JOIN verdict fv ON fv.run_id = fr.id
    WHERE fr.submission_id = r.submission_id AND fr.gpu = r.gpu AND fr.problem_version_id = r.problem_version_id
        AND fr.rejudging_id = r.rejudging_id AND NOT fr.second
) f ON r.second
WHERE r.submission_id = ANY(%(submissions)s) AND r.counts ORDER BY r.id
"""

_ATTEMPTS = """
SELECT a.run_id, a.number, a.name, a.backend, a.state, a.handle, a.node, a.ending, a.exit_code, a.reason, a.opened_at,
    a.submitted_at, a.started_at, a.ended_at, a.deadline_at, a.telemetry, a.why_here,
    a.keeper_id IS NOT NULL AS warm
FROM attempt a JOIN run r ON r.id = a.run_id
WHERE r.submission_id = ANY(%(submissions)s) ORDER BY a.run_id, a.number
"""

# Polled more often than anything else: one database round trip instead of three.
_FULL = (
    _SUBMISSION.format(
        late=late_s("s"),
        practice=practice("s"),
        source=f"""s.source,
    (SELECT json_agg(a) FROM ({_ATTEMPTS}) a) AS attempts,
    (SELECT json_agg(r) FROM ({_RUNS.format(detail="v.detail")}) r) AS runs""",
    )
    + "WHERE s.id = %(id)s"
)

_TOGETHER = """
SELECT s.id, (SELECT min(run.pinned) FROM run WHERE run.submission_id = s.id) AS place
FROM submission s JOIN submission first ON first.person_id = s.person_id AND first.board_id = s.board_id
    AND first.via = s.via AND first.mode = s.mode AND first.accepted_at = s.accepted_at
WHERE first.id = %(submission)s AND s.via = %(via)s AND s.id >= first.id ORDER BY s.id
"""

WHO_CANCELS = """
SELECT s.person_id AS author, p.role
FROM submission s LEFT JOIN person p ON p.id = %(by)s WHERE s.id = %(submission)s
"""

LOCK_RUNS = """
SELECT id FROM run WHERE submission_id = %(submission)s AND state IN ('queued', 'launching', 'running')
ORDER BY id FOR UPDATE
"""

CANCEL_QUEUED = """
WITH moved AS (
    UPDATE run SET state = 'cancelled', cancel_at = %(now)s, cancel_by = %(by)s, ended_at = %(now)s,
        broke_off = second AND person_id IS NOT DISTINCT FROM %(by)s::bigint
    WHERE submission_id = %(submission)s AND state = 'queued'
    RETURNING id, submission_id, gpu, person_id
)
INSERT INTO event (kind, subject, data, at)
SELECT 'run.cancelled', 'run:' || id, jsonb_build_object('submission', submission_id, 'gpu', gpu, 'person', person_id,
    'by', %(by)s::bigint), %(now)s
FROM moved
"""

ASK_TO_CANCEL = f"""
WITH asked AS (
    UPDATE run SET cancel_at = %(now)s, cancel_by = %(by)s
    WHERE submission_id = %(submission)s AND {LIVE} AND cancel_at IS NULL
    RETURNING id, submission_id, gpu, attempts
)
INSERT INTO event (kind, subject, data, at)
SELECT 'run.cancel_asked', 'run:' || id, jsonb_build_object('submission', submission_id, 'gpu', gpu,
    'attempt', attempts, 'by', %(by)s::bigint), %(now)s
FROM asked
"""

ASKED_ATTEMPTS = f"""
SELECT {ATTEMPT_COLUMNS}, run.cancel_at FROM run JOIN attempt a ON a.run_id = run.id AND a.number = run.attempts
WHERE run.submission_id = %(submission)s AND run.{LIVE} AND a.{OPEN_ATTEMPT}
ORDER BY a.id
"""


class Submissions(Rows):
    """People's submissions."""

    def get(self, submission: SubmissionId) -> SubmissionView:
        """A complete submission: source, runs, attempts, verdicts with their reports."""
        found = self._one(_FULL, {"id": submission, "submissions": [submission]})
        if found is None:
            raise NotFound("submission", str(submission))
        attempts, runs = ([_timed(row) for row in found.pop(name) or ()] for name in ("attempts", "runs"))
        return _views([found], attempts, runs)[0]

    def newest(
        self,
        *,
        person: PersonId | None = None,
        board: str | None = None,
        verdict: str | None = None,
        mode: str | None = None,
        since: datetime | None = None,
        boards: Collection[int] | None = None,
        or_of: PersonId | None = None,
        limit: int = 50,
        offset: int = 0,
        removed: bool = False,
    ) -> list[SubmissionView]:
        """Newest first, without sources and reports: those that match all that is given. `verdict`: of any of its runs;
        `boards`: at one of these, or of the person `or_of`."""
        told: dict[str, Any] = {"person": person, "board": board, "limit": limit, "offset": offset}
        # Of few, looked up one by one: otherwise the planner may read every verdict for one that is rare.
        of_each = "" if person is None and board is None and boards is None else " OFFSET 0"
        told |= {"verdict": verdict, "mode": mode, "since": since, "or_of": or_of, "boards": list(boards or ())}
        wanted = {
            "s.person_id = %(person)s": person is not None,
            # Looked up first, so that the index on (board_id, id) gives the newest without reading the others.
            "s.board_id = (SELECT id FROM leaderboard WHERE lower(name) = lower(%(board)s) AND deleted_at IS NULL)": (
                board is not None
            ),
            "s.mode = %(mode)s": mode is not None,
            "s.accepted_at >= %(since)s": since is not None,
            "EXISTS (SELECT 1 FROM run r JOIN verdict v ON v.run_id = r.id"
            f" WHERE r.submission_id = s.id AND r.counts AND v.name = %(verdict)s{of_each})": verdict is not None,
            "(s.board_id = ANY(%(boards)s::bigint[]) OR s.person_id = %(or_of)s)": boards is not None,
            "s.removed_at IS NULL": not removed,
        }
        where = " AND ".join(words for words, is_wanted in wanted.items() if is_wanted)
        found = self._all(
            _SUBMISSION.format(late=late_s("s"), practice=practice("s"), source="NULL::text AS source")
            + (f"WHERE {where}" if where else "")
            + " ORDER BY s.id DESC LIMIT %(limit)s OFFSET %(offset)s",
            told,
        )
        if not found:
            return []
        these = {"submissions": [row["id"] for row in found]}
        attempts = self._all(_ATTEMPTS, these)
        return _views(found, attempts, self._all(_RUNS.format(detail="NULL::jsonb"), these))

    def count(self, board: int, gpu: str, person: int | None = None) -> int:
        """How many submissions this board has for the GPU type, without deleted ones."""
        found = self._one(
            "SELECT count(DISTINCT s.id) AS n FROM submission s JOIN run r ON r.submission_id = s.id"
            " WHERE s.board_id = %(board)s AND s.removed_at IS NULL AND r.gpu = %(gpu)s"
            " AND (%(person)s::bigint IS NULL OR s.person_id = %(person)s)",
            {"board": board, "gpu": gpu, "person": person},
        )
        assert found is not None
        return int(found["n"])

    def ids(self, board: int, *, limit: int, offset: int) -> list[SubmissionId]:
        """The numbers of a board's submissions, newest first, without deleted ones."""
        found = self._all(
            "SELECT id FROM submission WHERE board_id = %(board)s AND removed_at IS NULL"
            " ORDER BY id DESC LIMIT %(limit)s OFFSET %(offset)s",
            {"board": board, "limit": limit, "offset": offset},
        )
        return [SubmissionId(row["id"]) for row in found]

    def ordered_together(self, submission: SubmissionId, via: str) -> list[tuple[SubmissionId, str | None]]:
        """This canary and those ordered with it, each with its place."""
        found = self._all(_TOGETHER, {"submission": submission, "via": via})
        return [(SubmissionId(row["id"]), row["place"]) for row in found]

    def unfinished(self, person: PersonId) -> list[SubmissionId]:
        """The numbers of this person's submissions that still have an open run."""
        found = self._all(
            "SELECT DISTINCT submission_id FROM run WHERE person_id = %(person)s"
            " AND state IN ('queued', 'launching', 'running') ORDER BY submission_id",
            {"person": person},
        )
        return [SubmissionId(row["submission_id"]) for row in found]

    def cancel(self, submission: SubmissionId, by: PersonId | None, now: datetime) -> Sequence[OpenAttempt]:
        told = {"submission": submission, "by": by, "now": now}
        with self._pool.transaction() as connection:
            who = row_of(connection, WHO_CANCELS, told)
            if who is None:
                raise NotFound("submission", str(submission))
            if by is not None and not access.may_handle(by, who["role"], who["author"]):
                raise Refused(f"submission {submission} isn't yours", hint="Its owner or staff can cancel it.")
            connection.execute(LOCK_RUNS.encode(), told)
            connection.execute(CANCEL_QUEUED.encode(), told)
            connection.execute(ASK_TO_CANCEL.encode(), told)
            return [attempt_of(found) for found in connection.execute(ASKED_ATTEMPTS.encode(), told)]

    def take_back(self, submission: SubmissionId, by: str, now: datetime, person: PersonId | None = None) -> None:
        """Remove it from every list and delete its source. This doesn't cancel open runs; `cancel` does.

        Deleting one's own submission doesn't erase its measurements: see `domain.measure.settled`.
        """
        told = {"id": submission, "now": now}
        with self._pool.transaction() as connection:
            found = connection.execute(
                b"UPDATE submission SET removed_at = coalesce(removed_at, %(now)s), source = '' WHERE id = %(id)s"
                b" RETURNING id",
                told,
            ).fetchone()
            if found is None:
                raise NotFound("submission", str(submission))
            connection.execute(
                b"DELETE FROM artifact USING attempt a JOIN run r ON r.id = a.run_id"
                b" WHERE artifact.attempt_id = a.id AND r.submission_id = %(id)s",
                told,
            )
            note_event(connection, "submission.removed", f"submission:{submission}", {"by": by, "person": person}, now)


def _views(found: Sequence[DictRow], attempts: Sequence[DictRow], runs: Sequence[DictRow]) -> list[SubmissionView]:
    tries: dict[int, list[AttemptView]] = {}
    for row in attempts:
        tries.setdefault(row.pop("run_id"), []).append(AttemptView(**row))
    ran: dict[int, list[RunView]] = {}
    for row in runs:
        ran.setdefault(row["submission_id"], []).append(_run(row, tries.get(row["id"], ())))
    return [
        SubmissionView(**row, runs=tuple(_in_time(ran.get(row["id"], ()), row["late_s"], row["practice"])))
        for row in found
    ]


def _in_time(runs: Iterable[RunView], late_by_s: float, is_practice: bool) -> Iterable[RunView]:
    """The runs of a submission that is late by so much: none of them ranks, and their authors are told why."""
    remark = lateness.PRACTICE if is_practice else lateness.remark(late_by_s)
    for run in runs:
        if remark is None or run.verdict is None or not run.verdict.ranked:
            yield run
        else:
            yield dataclasses.replace(run, verdict=dataclasses.replace(run.verdict, ranked=False, reason=remark))


def _timed(row: DictRow) -> DictRow:
    """A row that came as JSON, with its timestamps."""
    return {
        name: datetime.fromisoformat(value) if name.endswith("_at") and value is not None else value
        for name, value in row.items()
    }


def _run(row: DictRow, attempts: Iterable[AttemptView]) -> RunView:
    verdict = None
    if row["verdict"] is not None:
        verdict = Verdict(
            name=row["verdict"],
            reason=row["verdict_reason"],
            score_s=row["score_s"],
            low_s=row["low_s"],
            high_s=row["high_s"],
            isolation=row["isolation"],
            ranked=row["ranked"],
            detail=row["detail"],
        )
    return RunView(
        id=RunId(row["id"]),
        gpu=row["gpu"],
        state=RunState(row["state"]),
        problem_version_id=row["problem_version_id"],
        attempt_count=row["attempts"],
        queued_at=row["queued_at"],
        fair_at=row["fair_at"],
        cancel_at=row["cancel_at"],
        ended_at=row["ended_at"],
        reason=row["reason"],
        verdict=verdict,
        verdict_at=row["verdict_at"],
        second=row["second"],
        held=row["held"],
        first_score_s=row["first_score_s"],
        broke_off=row["broke_off"],
        measurements=row["measurements"] or 1,
        attempts=tuple(attempts),
    )
