"""Explanations of a run's state."""

from __future__ import annotations

from datetime import datetime

from kbslurm.domain import placement
from kbslurm.domain.why import Told, Tried
from kbslurm.errors import NotFound
from kbslurm.store.attempt_rows import OPEN_ATTEMPT
from kbslurm.store.claim_sql import COLD_ONLY
from kbslurm.store.connect import Pool
from kbslurm.store.costs import GPU_S, MONEY, Costs, sums
from kbslurm.store.rows import Rows

_WHY = f"""
SELECT run.id AS run, run.submission_id AS submission, b.name AS board, s.team, run.gpu, run.state, s.mode,
    run.by_staff, v.ranks AS gpus, run.cost_s * v.ranks AS most_gpu_s, run.held, run.second, run.pinned,
    {COLD_ONLY} AS cold,
    greatest(0, extract(epoch FROM %(now)s - run.queued_at))::float8 AS waited_s,
    (SELECT count(*) FROM run o WHERE o.state = 'queued' AND NOT o.held AND o.gpu = run.gpu
        AND (o.fair_at, o.id) < (run.fair_at, run.id)) AS ahead,
    verdict.name AS verdict, verdict.ranked, coalesce(verdict.reason, run.reason) AS reason,
    (SELECT info FROM lease WHERE name IN ('daemon', 'ticks') AND expires_at > %(now)s ORDER BY name LIMIT 1) AS leader
FROM run JOIN submission s ON s.id = run.submission_id JOIN leaderboard b ON b.id = s.board_id
JOIN problem_version v ON v.id = run.problem_version_id LEFT JOIN verdict ON verdict.run_id = run.id
WHERE run.id = %(run)s
"""

_WHY_TRIED = f"""
SELECT a.number, a.backend, a.state, a.ending, a.reason, a.why_here, a.gpu_class, a.ranks,
    a.keeper_id IS NOT NULL AS warm,
    coalesce(a.telemetry ->> 'waits', '') AS waits, a.withdraw_at IS NOT NULL AS wanted_back,
    {GPU_S} AS gpu_s, {MONEY} AS money
FROM attempt a WHERE a.run_id = %(run)s ORDER BY a.number
"""

_OPEN_AT = f"SELECT backend, sum(gpus) AS n FROM attempt WHERE {OPEN_ATTEMPT} AND gpu = %(gpu)s GROUP BY backend"


class Runs(Rows):
    """Single runs, explained."""

    def __init__(self, pool: Pool, costs: Costs) -> None:
        super().__init__(pool)
        self._costs = costs

    def why(self, run: int, now: datetime) -> Told:
        """The facts that explain this run's state."""
        found = self._one(_WHY, {"run": run, "now": now})
        if found is None:
            raise NotFound("run", str(run))
        tries = [Tried(**row) for row in self._all(_WHY_TRIED, {"run": run, "now": now})]
        open_at = {row["backend"]: row["n"] for row in self._all(_OPEN_AT, {"gpu": found["gpu"]})}
        spent = self._costs.spent(*placement.month_of(now), now) if found["state"] == "queued" else []
        return Told(
            **found,
            tries=tries,
            open_at=open_at,
            spent=sum(row["money"] for row in spent),
            spent_of_board=sums(spent, "board").get(found["board"].lower(), 0.0),
            spent_of_team=sums(spent, "team").get(found["team"], 0.0),
        )
