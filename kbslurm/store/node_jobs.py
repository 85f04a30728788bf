"""Jobs that nodes claim at our API: the only thing that decides whether one starts, and by whom."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from kbslurm.domain.node_jobs import NodeJob
from kbslurm.domain.run import JobName
from kbslurm.errors import NotFound, Refused
from kbslurm.store.attempt_rows import OPEN_ATTEMPT
from kbslurm.store.connect import Connection
from kbslurm.store.rows import Rows, row_of

_COLUMNS = """name, place, lease_s, offered_at, forbidden_at, claimed_at, heard_at, node,
    coalesce(progress->'told', '{}') AS progress, result IS NOT NULL AS reported"""

# The claimant numbers its calls: one that isn't higher than all before it is a repetition, and no sign of life.
_IS_NEW = "%(number)s > coalesce((progress->>'number')::bigint, 0)"

_OFFER = """
INSERT INTO node_job (name, place, lease_s, sealed_order, offered_at)
VALUES (%(name)s, %(place)s, %(lease_s)s, %(order)s, %(now)s)
ON CONFLICT (name) DO UPDATE SET sealed_order = excluded.sealed_order, lease_s = excluded.lease_s
WHERE node_job.claimed_at IS NULL AND node_job.forbidden_at IS NULL AND node_job.place = excluded.place
"""

_FORBID = """
INSERT INTO node_job (name, place, lease_s, offered_at, forbidden_at) VALUES (%(name)s, %(place)s, 0, %(now)s, %(now)s)
ON CONFLICT (name) DO UPDATE SET forbidden_at = coalesce(node_job.forbidden_at, excluded.forbidden_at)
WHERE NOT %(unclaimed)s OR node_job.claimed_at IS NULL
"""

# Only the first asker, and the same again when its answer was lost. An attempt that has been given up starts nothing.
_CLAIM = f"""
UPDATE node_job SET claimant = %(who)s, node = %(node)s, claimed_at = coalesce(claimed_at, %(now)s),
    heard_at = CASE WHEN {_IS_NEW} THEN %(now)s ELSE coalesce(heard_at, %(now)s) END,
    progress = CASE WHEN {_IS_NEW} THEN %(progress)s ELSE progress END
WHERE name = %(name)s AND place = %(place)s AND forbidden_at IS NULL AND result IS NULL AND sealed_order IS NOT NULL
  AND (claimant IS NULL OR claimant = %(who)s) RETURNING sealed_order
"""

_RUN_OF = "SELECT run_id FROM attempt WHERE name = %(name)s"
_LOCK_RUN = "SELECT id FROM run WHERE id = %(run_id)s FOR SHARE"
_MAY_GO_ON = f"""
SELECT a.id FROM attempt a JOIN run r ON r.id = a.run_id
WHERE a.name = %(name)s AND a.{OPEN_ATTEMPT} AND r.attempts = a.number AND r.cancel_at IS NULL
"""

_HEAR = f"""
UPDATE node_job SET heard_at = CASE WHEN {_IS_NEW} THEN %(now)s ELSE heard_at END,
    progress = CASE WHEN {_IS_NEW} THEN %(progress)s ELSE progress END
WHERE name = %(name)s AND place = %(place)s AND claimant = %(who)s RETURNING forbidden_at, result IS NOT NULL AS over
"""

# The first delivery counts; a repeated one changes nothing. What is no longer needed is no longer kept.
_DELIVER = """
UPDATE node_job SET result = coalesce(result, %(result)s), sealed_order = NULL, heard_at = %(now)s
WHERE name = %(name)s AND place = %(place)s AND claimant = %(who)s RETURNING name
"""


class NodeJobs(Rows):
    """ports.NodeJobs, and what the API does for the nodes."""

    def offer(self, name: JobName, place: str, order: bytes, lease_s: float, now: datetime) -> NodeJob:
        self._do(_OFFER, {"name": name, "place": place, "lease_s": lease_s, "order": order, "now": now})
        return self.look([name])[name]

    def look(self, names: Sequence[JobName]) -> Mapping[JobName, NodeJob]:
        rows = self._all(f"SELECT {_COLUMNS} FROM node_job WHERE name = ANY(%(names)s)", {"names": list(names)})
        return {JobName(row["name"]): _job_of(row) for row in rows}

    def forbid(self, name: JobName, place: str, now: datetime, *, unclaimed: bool = False) -> NodeJob:
        told = {"name": name, "place": place, "now": now, "unclaimed": unclaimed}
        self._do(_FORBID, told)
        return self.look([name])[name]

    def result(self, name: JobName) -> bytes | None:
        row = self._one("SELECT result FROM node_job WHERE name = %(name)s", {"name": name})
        return None if row is None or row["result"] is None else bytes(row["result"])

    def prune(self, place: str, before: datetime, *, keep: Collection[JobName]) -> int:
        told = {"place": place, "before": before, "keep": list(keep)}
        statement = (
            "DELETE FROM node_job WHERE place = %(place)s AND NOT name = ANY(%(keep)s)"
            " AND greatest(offered_at, claimed_at, heard_at, forbidden_at) < %(before)s"
        )
        with self._pool.transaction() as connection:
            return connection.execute(statement.encode(), told).rowcount

    def close(self) -> None:
        """Close its connections, where it is a part of no store."""
        self._pool.close()

    # ------------------------------------------------------------------------------------------------ for the nodes

    def claim(self, name: JobName, place: str, *, who: str, node: str, number: int, now: datetime) -> bytes:
        """The sealed order, for the first process that asks, and for it alone. Refused for every other one, and where
        the attempt was cancelled or given up meanwhile. `number`: higher in each of the process's calls."""
        with self._pool.transaction() as connection:
            _check_may_go_on(connection, name)
            told = {"name": name, "place": place, "who": who, "node": node, "number": number, "now": now}
            told |= {"progress": Jsonb({"number": number, "told": {}})}
            row = row_of(connection, _CLAIM, told)
        if row is None:
            raise Refused(f"{name} isn't to be started", hint="It was started before, cancelled, or never offered.")
        return bytes(row["sealed_order"])

    def hear(
        self, name: JobName, place: str, *, who: str, number: int, progress: Mapping[str, Any], now: datetime
    ) -> bool:
        """Note that the claimant is alive, unless this is an earlier call once more; returns whether it is to go on."""
        kept = Jsonb({"number": number, "told": dict(progress)})
        told = {"name": name, "place": place, "who": who, "number": number, "progress": kept, "now": now}
        row = self._one(_HEAR, told)
        if row is None or row["forbidden_at"] is not None or row["over"]:
            return False
        with self._pool.transaction() as connection:
            return not _is_fenced(connection, name)

    def deliver(self, name: JobName, place: str, *, who: str, result: bytes, now: datetime) -> None:
        """Keep the claimant's sealed result until it is collected. The first one counts."""
        told = {"name": name, "place": place, "who": who, "result": result, "now": now}
        if self._one(_DELIVER, told) is None:
            raise NotFound("job of this process's", name)


def _check_may_go_on(connection: Connection, name: JobName) -> None:
    """Lock its run until the claim is made: whoever gives the attempt up at this moment does so before it, or sees
    it."""
    row = row_of(connection, _RUN_OF, {"name": name})
    if row is not None:
        row_of(connection, _LOCK_RUN, row)
    if _is_fenced(connection, name):
        raise Refused(f"{name} isn't to be started", hint="Its attempt was given up.")


def _is_fenced(connection: Connection, name: JobName) -> bool:
    """Whether this is a known attempt that is over, superseded or cancelled."""
    known = row_of(connection, _RUN_OF, {"name": name}) is not None
    return known and row_of(connection, _MAY_GO_ON, {"name": name}) is None


def _job_of(row: DictRow) -> NodeJob:
    return NodeJob(**{**row, "name": JobName(row["name"])})
