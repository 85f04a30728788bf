"""How an attempt is read from its row, which attempts are open, and the fence for later writes."""

from __future__ import annotations

from typing import Any

from psycopg.rows import DictRow

from kbslurm.domain.run import (
    AttemptId,
    AttemptState,
    Handle,
    InKeeper,
    JobName,
    KeeperId,
    KeeperName,
    OpenAttempt,
    RunId,
)

LIVE = "state IN ('launching', 'running')"
OPEN_ATTEMPT = "state IN ('intent', 'ambiguous', 'submitted', 'running')"

# The GPU-seconds of an attempt that has ended. `reserve_s` is the most that it could use.
ENDED_GPU_S = """WHEN a.state = 'refused' THEN 0
    WHEN a.started_at IS NOT NULL THEN greatest(0, extract(epoch FROM a.ended_at - a.started_at))
    WHEN a.state = 'cancelled' THEN 0
    WHEN a.state = 'reported'
        THEN least(a.reserve_s, greatest(0, extract(epoch FROM a.ended_at - coalesce(a.submitted_at, a.opened_at))))
    ELSE a.reserve_s"""

ATTEMPT_COLUMNS = """a.id, a.run_id, a.number, a.name, a.backend, a.gpu, a.state, a.handle, a.opened_at, a.deadline_at,
    a.clean_sweeps, a.swept_at, a.seen_at, a.started_at, a.node, a.gpus, a.ranks, a.withdraw_at, a.keeper_id,
    (SELECT k.name FROM keeper k WHERE k.id = a.keeper_id) AS keeper_name,
    (SELECT k.handle FROM keeper k WHERE k.id = a.keeper_id) AS keeper_job,
    (a.telemetry ->> 'over_at')::timestamptz AS over_at"""


def fence(attempt: OpenAttempt) -> dict[str, Any]:
    return {"attempt": attempt.id, "run": attempt.run_id, "number": attempt.number}


def attempt_of(row: DictRow) -> OpenAttempt:
    handle = row["handle"]
    return OpenAttempt(
        id=AttemptId(row["id"]),
        run_id=RunId(row["run_id"]),
        number=row["number"],
        name=JobName(row["name"]),
        backend=row["backend"],
        gpu=row["gpu"],
        state=AttemptState(row["state"]),
        handle=None if handle is None else Handle(handle),
        opened_at=row["opened_at"],
        deadline_at=row["deadline_at"],
        clean_sweeps=row["clean_sweeps"],
        swept_at=row["swept_at"],
        seen_at=row["seen_at"],
        started_at=row["started_at"],
        node=row["node"],
        cancel_at=row["cancel_at"],
        gpus=row["gpus"],
        ranks=row["ranks"],
        withdraw_at=row["withdraw_at"],
        over_at=row["over_at"],
        keeper=_keeper_of(row),
    )


def _keeper_of(row: DictRow) -> InKeeper | None:
    if row["keeper_id"] is None:
        return None
    job = row["keeper_job"]
    return InKeeper(
        id=KeeperId(row["keeper_id"]), name=KeeperName(row["keeper_name"]), job=None if job is None else Handle(job)
    )
