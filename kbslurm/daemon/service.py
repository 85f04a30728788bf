"""The daemon for a configuration: its places, database, logs and metrics."""

from __future__ import annotations

import contextlib
import threading

from kbslurm import wiring
from kbslurm.config.settings import Config
from kbslurm.daemon.loop import Daemon
from kbslurm.daemon.signals import stop_on_signals
from kbslurm.daemon.timing import Timing
from kbslurm.observe import logs
from kbslurm.observe.metrics import Metrics, MetricsPage


def run_daemon(
    config: Config,
    stop: threading.Event | None = None,
    *,
    once: bool = False,
    log_json: bool = False,
    verbose: bool = False,
) -> None:
    """Serve this configuration until `stop`, or without one until SIGTERM or ^C. Running jobs keep running."""
    logs.set_up(as_json=log_json, level="debug" if verbose else "info")
    with contextlib.ExitStack() as stack:
        stop = stop or stack.enter_context(stop_on_signals())
        places = wiring.places(config)
        store = stack.enter_context(wiring.opened_store(config))
        metrics = Metrics()
        if config.daemon.metrics:
            host, _, port = config.daemon.metrics.rpartition(":")
            stack.enter_context(MetricsPage(metrics.registry, host=host.strip("[]"), port=int(port)))
        timing = Timing(lease_s=config.daemon.lease_ttl_s, idle_s=config.daemon.tick_s)
        Daemon(store, places, timing=timing, metrics=metrics, rules=wiring.rules(config)).run(stop, once=once)
