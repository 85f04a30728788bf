"""What Prometheus may know of the daemon: counters and gauges on `/metrics`, no names of people and no sources.

What it may know of the API is in `kbslurm.api.metrics`.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, start_http_server

from kbslurm.domain.run import OpenAttempt
from kbslurm.errors import Misconfigured

TICK_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class Metrics:
    """One daemon's numbers, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.leading = Gauge("kbslurm_leading", "1 while this daemon holds the lease", registry=self.registry)
        self.waiting = Gauge("kbslurm_runs_waiting", "Queued runs", ["gpu"], registry=self.registry)
        self.open = Gauge("kbslurm_attempts_open", "Open attempts", ["backend", "state"], registry=self.registry)
        self.ticks = Counter("kbslurm_ticks", "Ticks of the daemon", registry=self.registry)
        self.tick_s = Histogram("kbslurm_tick_seconds", "A tick", buckets=TICK_BUCKETS, registry=self.registry)
        self.claims = Counter("kbslurm_claims", "Attempts opened", ["backend", "gpu"], registry=self.registry)
        self.launches = Counter(
            "kbslurm_launches", "What came of launches", ["backend", "came"], registry=self.registry
        )
        self.settled = Counter("kbslurm_attempts_settled", "Attempts that ended", ["backend"], registry=self.registry)
        self.turns = Counter("kbslurm_backend_turns", "Times a backend was asked", ["backend"], registry=self.registry)
        self.trouble = Counter("kbslurm_backend_trouble", "Times it misbehaved", ["backend"], registry=self.registry)
        self.backing_off = Gauge(
            "kbslurm_backend_backing_off", "1 while left alone", ["backend"], registry=self.registry
        )

    def saw(self, waiting: Mapping[str, int], attempts: Iterable[OpenAttempt]) -> None:
        """Set the gauges to what the rows say now."""
        self.waiting.clear()
        for gpu, count in waiting.items():
            self.waiting.labels(gpu).set(count)
        self.open.clear()
        for (backend, state), count in Tally((attempt.backend, attempt.state) for attempt in attempts).items():
            self.open.labels(backend, state).set(count)

    def text(self) -> str:
        """The exposition format."""
        return generate_latest(self.registry).decode()


class MetricsPage:
    """`/metrics` at an address of its own while it is entered. Port 0 takes any free one; `port` says which."""

    def __init__(
        self, registry: CollectorRegistry, *, host: str = "127.0.0.1", port: int = 0, key: str = "daemon.metrics"
    ) -> None:
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise Misconfigured(
                f"metrics can't be served on {host}:{port} ({error.strerror or error})",
                fix=f"Free the port, or change {key}.",
            ) from error
        self.port = int(self._server.server_port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)
