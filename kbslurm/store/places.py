"""The health of places: recent outcomes there, and their circuit breakers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from kbslurm.domain.breaker import Breaker, Outcomes, kept, told
from kbslurm.store.quarantine import INFRASTRUCTURE
from kbslurm.store.rows import Rows

BREAKER = "breaker:"
LATELY = 500  # number of recent attempts that a place's health is based on

_OUTCOMES = f"""
SELECT backend, max(good_at) AS good_at, max(ended_at) FILTER (WHERE is_bad) AS bad_at,
    count(DISTINCT person_id) FILTER (WHERE is_bad AND (good_at IS NULL OR ended_at > good_at)) AS people
FROM (
    SELECT a.backend, run.person_id, a.ended_at, a.state = 'dead' AND a.{INFRASTRUCTURE} AS is_bad,
        max(a.ended_at) FILTER (WHERE a.state = 'reported') OVER (PARTITION BY a.backend) AS good_at
    FROM attempt a JOIN run ON run.id = a.run_id
    WHERE a.id > (SELECT max(id) FROM attempt) - {LATELY} AND a.ended_at > %(now)s - interval '1 hour'
) lately GROUP BY backend
"""


class Places(Rows):
    """ports.Places: outcomes and breakers."""

    def outcomes(self, now: datetime) -> Mapping[str, Outcomes]:
        return {
            row["backend"]: Outcomes(people=row["people"], bad_at=row["bad_at"], good_at=row["good_at"])
            for row in self._all(_OUTCOMES, {"now": now})
        }

    def breakers(self) -> Mapping[str, Breaker]:
        found = self._all("SELECT key, value FROM setting WHERE starts_with(key, %(mark)s)", {"mark": BREAKER})
        return {row["key"].removeprefix(BREAKER): kept(row["value"]) for row in found}

    def keep_breaker(self, backend: str, breaker: Breaker) -> None:
        self._do(
            "INSERT INTO setting (key, value) VALUES (%(key)s, %(value)s::text::jsonb)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            {"key": BREAKER + backend, "value": json.dumps(told(breaker))},
        )
