"""`kbslurm tick`: the daemon's work in bounded visits, for a timer where no process may stay.

A visit holds the daemon's lease while it works, so daemons and visits exclude one another. When it ends it leaves a row
of its own among the leases: what it saw, and until when the next visit isn't overdue. Everything else that the next one
needs is in the rows of the walk anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kbslurm import wiring
from kbslurm.config import secret_values
from kbslurm.daemon.loop import LEASE, Daemon
from kbslurm.daemon.signals import stop_on_signals
from kbslurm.daemon.timing import Timing
from kbslurm.errors import Refused
from kbslurm.observe import logs
from kbslurm.observe.metrics import Metrics, total
from kbslurm.ports import TICKS

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import LeaseState

PASS_S = 45.0
HOLDER = "kbslurm tick"
# A visit is overdue after three of the intervals that were kept before, within these bounds.
OVERDUE_AFTER, SOONEST_S, LATEST_S = 3.0, 300.0, 3_600.0


@dataclass(frozen=True, kw_only=True)
class Visit:
    """What a visit did, and what it left. `unfinished`: places that hadn't answered when its time was up."""

    claimed: int
    launched: int
    settled: int
    open: int
    queued: int
    troubles: Mapping[str, str] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()


def visit(config: Config, *, for_s: float | None, log_json: bool = False, verbose: bool = False) -> Visit:
    """Do what is due, or with `for_s` serve for so long. Refused if another daemon leads."""
    logs.set_up(as_json=log_json, level="debug" if verbose else "info", secrets=secret_values.known)
    with stop_on_signals() as stop, wiring.opened_store(config) as store:
        metrics, leases = Metrics(), {line.name: line for line in store.leases.all()}
        last = leases.get(TICKS)
        daemon = Daemon(
            store,
            wiring.places(config),
            timing=Timing(lease_s=config.daemon.lease_ttl_s, idle_s=config.daemon.tick_s),
            metrics=metrics,
            rules=wiring.rules(config),
            before=_told_before(last, daemon_at=leases[LEASE].beat_at if LEASE in leases else None),
        )
        return _visited(store, daemon, metrics, stop, last, for_s)


def _visited(
    store: PostgresStore,
    daemon: Daemon,
    metrics: Metrics,
    stop: threading.Event,
    last: LeaseState | None,
    for_s: float | None,
) -> Visit:
    if not daemon.visit(stop, for_s=PASS_S if for_s is None else for_s, stay=for_s is not None):
        holder = next((line.holder for line in store.leases.all() if line.name == LEASE), "another daemon")
        raise Refused(
            f"another daemon leads ({holder}), so this tick did nothing",
            hint="That is as it should be where a daemon runs, or where an earlier tick is still at work.",
        )
    now, told = datetime.now(UTC), daemon.told()
    store.leases.hold(TICKS, HOLDER, _overdue_after_s(last, now), now, info={**told, "host": daemon.holder})
    places = told["places"]
    return Visit(
        claimed=total(metrics.claims),
        launched=total(metrics.launches, came="submitted"),
        settled=total(metrics.settled),
        open=len(store.attempts.open()),
        queued=sum(store.queue.waiting().values()),
        troubles={
            name: lane["lapse"] or lane["why"] for name, lane in places.items() if lane["lapse"] or lane["troubles"]
        },
        unfinished=tuple(daemon.busy()),
    )


def _told_before(last: LeaseState | None, *, daemon_at: datetime | None) -> Mapping[str, Any]:
    """What the last visit told of the places, unless that is long ago or a daemon has led since."""
    stale = last is None or last.expires_at < datetime.now(UTC) or (daemon_at is not None and daemon_at > last.beat_at)
    if stale or last is None:
        return {}
    found: Mapping[str, Any] = last.info.get("places", {})
    return found


def _overdue_after_s(last: LeaseState | None, now: datetime) -> float:
    """How long from now the next visit isn't overdue; a first one says nothing of the next."""
    if last is None:
        return LATEST_S
    kept_s = (now - last.beat_at).total_seconds()
    return min(LATEST_S, max(SOONEST_S, OVERDUE_AFTER * kept_s))
