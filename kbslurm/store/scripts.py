"""Scripts that hosts run without a board: ordered within a budget, and what a person's scripts have used."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kbslurm.domain import fairness, scripts
from kbslurm.domain.manifest import time_limit_s
from kbslurm.domain.run import PersonId, RunState, SubmissionId
from kbslurm.domain.source import Source
from kbslurm.errors import NotFound
from kbslurm.store.attempt_rows import ENDED_GPU_S
from kbslurm.store.connect import Connection
from kbslurm.store.problems import make_version
from kbslurm.store.rows import Rows, note_event, row_of
from kbslurm.store.seeds import derived_seed

VIA = "script"

# A person's scripts are decided on one after the other. Whoever holds this waits for nobody else's.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('script', %(person)s))"

_LOCK_BOARD = "SELECT pg_advisory_xact_lock(hashtextextended('script', 0))"

# What stands in a board's place. It is deleted from the start, so that no list has it and no name finds it.
_BOARD = """
SELECT b.id FROM leaderboard b JOIN problem p ON p.id = b.problem_id WHERE p.name = %(name)s
"""

_MAKE_BOARD = """
INSERT INTO leaderboard (name, problem_id, problem_version_id, visibility, gpus, secret_seed, created_at, deleted_at)
SELECT %(name)s, problem_id, id, 'closed', '{}', %(seed)s, %(now)s, %(now)s FROM problem_version
WHERE id = %(version)s RETURNING id
"""

# An attempt counts as in every other budget: also if nobody saw it start, since a report may come from one that the
# scheduler never spoke of.
_SPENT = f"""
SELECT coalesce(sum(used.gpu_s), 0)::float8 AS used_s,
    coalesce((SELECT sum((v.content->'limits'->>'test_s')::float8) FROM run r
        JOIN submission s ON s.id = r.submission_id JOIN problem_version v ON v.id = r.problem_version_id
        WHERE s.person_id = %(person)s AND s.via = '{VIA}' AND r.state IN ('queued', 'launching', 'running')), 0)
        AS open_s,
    min(a.ended_at) FILTER (WHERE used.gpu_s > 0) AS oldest_use_at
FROM submission s JOIN run r ON r.submission_id = s.id JOIN attempt a ON a.run_id = r.id
    CROSS JOIN LATERAL (SELECT a.gpus * CASE {ENDED_GPU_S} END AS gpu_s) used
WHERE s.person_id = %(person)s AND s.via = '{VIA}' AND a.ended_at > %(since)s
    AND s.accepted_at > %(since)s - interval '7 days'
"""

_LAST = """
SELECT fair_at, cost_s FROM run WHERE person_id = %(person)s AND state IN ('queued', 'launching', 'running') AND counts
    AND fair_at < %(service_from)s ORDER BY fair_at DESC LIMIT 1
"""

# It counts as removed from the start, as the service's own runs do: nobody's list or history has it.
_ORDER = f"""
WITH taken AS (
    INSERT INTO submission (person_id, board_id, mode, file_name, source, sha256, via, by_staff, accepted_at,
        removed_at)
    VALUES (%(person)s, %(board)s, 'test', %(file_name)s, %(source)s, %(sha256)s, '{VIA}', %(by_staff)s, %(now)s,
        %(now)s)
    RETURNING id
), due AS (
    INSERT INTO run (submission_id, problem_version_id, person_id, gpu, fair_at, queued_at, cost_s, by_staff,
        secret_seed, may_rank, pinned)
    SELECT id, %(version)s, %(person)s, %(gpu)s, %(fair_at)s, %(now)s, %(cost_s)s, %(by_staff)s, %(seed)s, false,
        %(place)s FROM taken
    RETURNING id, submission_id, gpu
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'run.queued', 'run:' || id, jsonb_build_object('submission', submission_id, 'gpu', gpu, 'script', true),
        %(now)s FROM due
)
SELECT submission_id FROM due
"""

_IS_SCRIPT = f"SELECT person_id FROM submission WHERE id = %(id)s AND via = '{VIA}'"

# All scripts are on the one board, whose index on (board_id, id) gives the newest.
_LISTED = f"""
SELECT s.id, s.file_name, s.sha256, s.accepted_at, p.name AS by, r.gpu, r.state, r.pinned,
    (c.content->'limits'->>'test_s')::float8 AS timeout_s, coalesce(v.reason, r.reason) AS reason, v.name AS verdict,
    v.detail->'host' AS host, a.backend AS place, a.node,
    extract(epoch FROM a.ended_at - a.started_at)::float8 AS took_s
FROM submission s JOIN person p ON p.id = s.person_id JOIN run r ON r.submission_id = s.id AND r.counts
JOIN problem_version c ON c.id = r.problem_version_id LEFT JOIN verdict v ON v.run_id = r.id
LEFT JOIN LATERAL (
    SELECT * FROM attempt WHERE attempt.run_id = r.id ORDER BY number DESC LIMIT 1
) a ON true
WHERE s.board_id = (SELECT b.id FROM leaderboard b JOIN problem q ON q.id = b.problem_id WHERE q.name = %(name)s)
    AND s.via = '{VIA}' AND s.accepted_at > %(since)s AND (%(person)s::bigint IS NULL OR s.person_id = %(person)s)
ORDER BY s.id DESC LIMIT %(limit)s OFFSET %(offset)s
"""


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """A script in a list. `pinned`: the place that it was to run at; `place` and `node`: of its latest attempt; `host`:
    what its report says of it."""

    id: SubmissionId
    file_name: str
    sha256: str
    accepted_at: datetime
    by: str
    gpu: str
    state: RunState
    pinned: str | None
    timeout_s: float
    reason: str
    verdict: str | None
    host: Any
    place: str | None
    node: str | None
    took_s: float | None


class Scripts(Rows):
    """Scripts, from order to end; the queue and the daemon treat them as any run."""

    def order(
        self,
        person: PersonId,
        source: Source,
        gpu: str,
        timeout_s: int,
        most_gpu_s: float,
        *,
        place: str | None,
        by_staff: bool,
        by: str,
        now: datetime,
    ) -> SubmissionId:
        """Queue this script, unless it could take more than is left of the person's day; all in one transaction."""
        wanted = scripts.problem(timeout_s)
        told: dict[str, Any] = {"person": person, "gpu": gpu, "place": place, "by_staff": by_staff, "now": now}
        told |= {"file_name": source.file_name, "source": source.text, "sha256": source.sha256}
        told |= {"cost_s": time_limit_s(wanted, "test"), "seed": derived_seed(secrets.token_hex(16), gpu)}
        with self._pool.transaction() as connection:
            row_of(connection, _LOCK, told)
            scripts.check_budget(_spent(connection, person, now), timeout_s, most_gpu_s, now)
            told["version"] = make_version(connection, wanted, now)
            told["board"] = _board(connection, told["version"], now)
            last = row_of(connection, _LAST, {**told, "service_from": fairness.SERVICE_FROM})
            told["fair_at"] = now if last is None else fairness.fair_at(now, last["fair_at"], cost_s=last["cost_s"])
            made = row_of(connection, _ORDER, told)
            assert made is not None
            number = SubmissionId(made["submission_id"])
            about = {"gpu": gpu, "timeout_s": timeout_s, "file": source.file_name, "sha256": source.sha256, "by": by}
            note_event(connection, "staff.script", f"submission:{number}", {**about, "place": place}, now)
        return number

    def listed(self, since: datetime, *, person: PersonId | None = None, limit: int, offset: int = 0) -> list[Earlier]:
        """Everybody's scripts since then, or one person's, newest first."""
        told = {"name": scripts.NAME, "since": since, "person": person, "limit": limit, "offset": offset}
        return [Earlier(**{**row, "state": RunState(row["state"])}) for row in self._all(_LISTED, told)]

    def spent(self, person: PersonId, now: datetime) -> scripts.Spent:
        """What this person's scripts have used within a day, and may still use."""
        with self._pool.transaction() as connection:
            return _spent(connection, person, now)

    def author(self, number: int) -> PersonId:
        """Whose script this is; NotFound if the number isn't a script's."""
        found = self._one(_IS_SCRIPT, {"id": number})
        if found is None:
            raise NotFound("script", str(number))
        return PersonId(found["person_id"])


def _spent(connection: Connection, person: PersonId, now: datetime) -> scripts.Spent:
    found = row_of(connection, _SPENT, {"person": person, "since": scripts.since(now)})
    return scripts.Spent() if found is None else scripts.Spent(**found)


def _board(connection: Connection, version: int, now: datetime) -> int:
    found = row_of(connection, _BOARD, {"name": scripts.NAME})
    if found is None:
        row_of(connection, _LOCK_BOARD, {})
        found = row_of(connection, _BOARD, {"name": scripts.NAME})
    if found is None:
        made = {"name": scripts.NAME, "version": version, "seed": secrets.token_hex(16), "now": now}
        found = row_of(connection, _MAKE_BOARD, made)
    assert found is not None
    return int(found["id"])
