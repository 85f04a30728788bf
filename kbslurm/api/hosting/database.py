"""Hosts' check of the database: schema, leader, lag, last event; for the API, the bot and `kbslurm db check`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kbslurm.api.hosting.host_acts import HostActs
from kbslurm.domain.amounts import span

if TYPE_CHECKING:
    from kbslurm.store.postgres import PostgresStore

LEADER = "daemon"
LAGS_S = 30.0  # a leader renews its lease every few seconds
CLOCKS_APART_S = 5.0


class DatabaseActs(HostActs):
    """The database."""

    def database(self) -> Mapping[str, Any]:
        """Whether the schema is current, who leads and how late that is, and the last event."""
        return told(self.store)


def told(store: PostgresStore) -> dict[str, Any]:
    """The database's state. `troubles` has a sentence for each thing that somebody should look at."""
    from kbslurm.store import migrate

    began = time.perf_counter()
    found = store.health.look()
    round_trip_ms = (time.perf_counter() - began) * 1000
    now, known = datetime.now(UTC), migrate.revisions()
    schema = "current" if found.revision == known[-1] else "behind" if found.revision in known else "ahead"
    off_s = (found.database_at - now).total_seconds()
    leader = next((one for one in store.leases.all() if one.name == LEADER), None)
    lag_s = None if leader is None else max(0.0, (found.database_at - leader.beat_at).total_seconds())
    leads = leader is not None and leader.expires_at > found.database_at
    troubles = []
    if schema != "current":
        fix = "run kbslurm db upgrade" if schema == "behind" else "install the newer version of kbslurm"
        troubles.append(f"the schema is {schema} ({found.revision}; this version needs {known[-1]}): {fix}")
    if not leads:
        troubles.append("no daemon is leading: nothing is launched or collected (kbslurm up starts one)")
    elif lag_s is not None and lag_s > LAGS_S:
        troubles.append(f"the leader hasn't renewed its lease for {span(lag_s)}")
    if abs(off_s) > CLOCKS_APART_S:
        troubles.append(f"the database's clock and this host's are {span(abs(off_s))} apart")
    if found.is_standby:
        troubles.append("it is a read-only standby: nothing can be stored")
    return {
        "schema": schema,
        "revision": found.revision,
        "needs": known[-1],
        "server": f"Postgres {found.server.split()[0]}",
        "size_bytes": found.bytes,
        "round_trip_ms": round(round_trip_ms, 2),
        "clock_off_s": round(off_s, 3),
        "leader": leader.holder if leader is not None and leads else None,
        "leads_for_s": round((now - leader.elected_at).total_seconds(), 1) if leader is not None and leads else None,
        "lag_s": None if lag_s is None else round(lag_s, 1),
        "last_event": None
        if found.event_id is None or found.event_at is None
        else {
            "id": found.event_id,
            "kind": found.event_kind,
            "age_s": round((found.database_at - found.event_at).total_seconds(), 1),
        },
        "troubles": troubles,
    }


def in_words(found: Mapping[str, Any]) -> list[str]:
    """The same as lines for people."""
    event = found["last_event"]
    led = f"{found['leader']}, for {span(found['leads_for_s'])}" if found["leader"] else "none"
    lag = "" if found["lag_s"] is None else f"; its lease was renewed {span(found['lag_s'])} ago"
    last = "none" if event is None else f"{event['kind']} (number {event['id']}), {span(event['age_s'])} ago"
    return [
        f"the schema is {found['schema']} ({found['revision']})",
        f"server: {found['server']}, {found['size_bytes'] / 1e6:.1f} MB, answers in {found['round_trip_ms']:g} ms",
        f"leader: {led}{lag}",
        f"last event: {last}",
        *(f"trouble: {one}" for one in found["troubles"]),
    ]
