"""The daemon for a configuration: its places, database, logs and metrics."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbslurm import wiring
from kbslurm.config import reloading, secret_values
from kbslurm.config.settings import Config
from kbslurm.daemon.loop import Daemon
from kbslurm.daemon.reload_step import Configured
from kbslurm.daemon.signals import reload_on_hangup, stop_on_signals
from kbslurm.daemon.timing import Timing
from kbslurm.observe import logs
from kbslurm.observe.metrics import Metrics, MetricsPage

if TYPE_CHECKING:
    from kbslurm.store.postgres import PostgresStore


def run_daemon(
    config: Config,
    stop: threading.Event | None = None,
    *,
    once: bool = False,
    log_json: bool = False,
    verbose: bool = False,
    reloaded: Callable[[Config], None] | None = None,
) -> None:
    """Serve this configuration until `stop`, or without one until SIGTERM or ^C. Running jobs keep running.

    SIGHUP, or a host's order, has it read anew; `reloaded` hears of one that is taken.
    """
    logs.set_up(as_json=log_json, level="debug" if verbose else "info", secrets=secret_values.known)
    with contextlib.ExitStack() as stack:
        stop = stop or stack.enter_context(stop_on_signals())
        places = wiring.places(config)
        store = stack.enter_context(wiring.opened_store(config))
        metrics = Metrics()
        if config.daemon.metrics:
            host, _, port = config.daemon.metrics.rpartition(":")
            stack.enter_context(MetricsPage(metrics.registry, host=host.strip("[]"), port=int(port)))
        timing = Timing(lease_s=config.daemon.lease_ttl_s, idle_s=config.daemon.tick_s)
        now = Current(config, store, reloaded)
        daemon = Daemon(store, places, timing=timing, metrics=metrics, rules=wiring.rules(config), reread=now.read)
        with reload_on_hangup(stop, daemon.reload):
            daemon.run(stop, once=once)


class Current:
    """The configuration in effect, and how it is read anew."""

    def __init__(self, config: Config, store: PostgresStore, reloaded: Callable[[Config], None] | None) -> None:
        self.config, self._store, self._reloaded = config, store, reloaded

    def read(self) -> Configured:
        """The configuration as the file and the environment say it now; what is only read at a start stays."""
        found, restart = reloading.again(self.config)
        rules = wiring.rules(found)
        wiring.check_slots(found)
        places = wiring.places(found)
        if found.database_url is not None and not self._store.use_url(found.database_url):
            restart = [*restart, "DATABASE_URL"]
        self.config = found
        if self._reloaded is not None:
            self._reloaded(found)
        timing = Timing(lease_s=found.daemon.lease_ttl_s, idle_s=found.daemon.tick_s)
        return Configured(places=places, rules=rules, timing=timing, restart=restart)
