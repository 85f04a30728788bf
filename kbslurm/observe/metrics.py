"""The daemon's Prometheus metrics: counters and gauges on `/metrics`, without names of people or sources.

The API's metrics are in `kbslurm.api.metrics`.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, start_http_server

from kbslurm.domain.keepers import Keeper
from kbslurm.domain.run import OpenAttempt
from kbslurm.errors import Misconfigured

TICK_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class Metrics:
    """One daemon's metrics, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.leading = Gauge("kbslurm_leading", "1 while this daemon holds the lease", registry=self.registry)
        self.waiting = Gauge("kbslurm_runs_waiting", "Queued runs", ["gpu"], registry=self.registry)
        self.open = Gauge("kbslurm_attempts_open", "Open attempts", ["backend", "state"], registry=self.registry)
        self.ticks = Counter("kbslurm_ticks", "Ticks of the daemon", registry=self.registry)
        self.tick_s = Histogram(
            "kbslurm_tick_seconds", "Duration of a tick", buckets=TICK_BUCKETS, registry=self.registry
        )
        self.claims = Counter("kbslurm_claims", "Attempts opened", ["backend", "gpu"], registry=self.registry)
        self.launches = Counter("kbslurm_launches", "Launches, by outcome", ["backend", "came"], registry=self.registry)
        self.settled = Counter("kbslurm_attempts_settled", "Attempts that ended", ["backend"], registry=self.registry)
        self.turns = Counter("kbslurm_backend_turns", "Calls to a backend", ["backend"], registry=self.registry)
        self.trouble = Counter("kbslurm_backend_trouble", "Backend failures", ["backend"], registry=self.registry)
        self.backing_off = Gauge(
            "kbslurm_backend_backing_off", "1 while paused after failures", ["backend"], registry=self.registry
        )

        self.keepers = Gauge(
            "kbslurm_warm_workers", "Jobs that hold or want a GPU for several runs", ["backend", "gpu", "state"],
            registry=self.registry,
        )  # fmt: skip
        self.idle_share = Gauge(
            "kbslurm_warm_idle_share", "The unused part of what warm workers held in the last 24 h",
            ["backend", "gpu"], registry=self.registry,
        )  # fmt: skip
        self.held_s = Gauge(
            "kbslurm_warm_held_seconds", "GPU-seconds that warm workers held in the last 24 h, by what they were for",
            ["backend", "gpu", "use"], registry=self.registry,
        )  # fmt: skip
        self.ordered = Counter(
            "kbslurm_warm_ordered", "Warm workers that were started", ["backend", "gpu"], registry=self.registry
        )
        self.let_go = Counter(
            "kbslurm_warm_let_go", "Warm workers that were let go, by the reason", ["backend", "gpu", "ending"],
            registry=self.registry,
        )  # fmt: skip

    def saw_keepers(self, keepers: Iterable[Keeper]) -> None:
        """Set the gauge of warm workers from the database."""
        self.keepers.clear()
        for (backend, gpu, state), count in Tally((one.backend, one.gpu, one.state) for one in keepers).items():
            self.keepers.labels(backend, gpu, state).set(count)

    def saw(self, waiting: Mapping[str, int], attempts: Iterable[OpenAttempt]) -> None:
        """Set the gauges from the database."""
        self.waiting.clear()
        for gpu, count in waiting.items():
            self.waiting.labels(gpu).set(count)
        self.open.clear()
        for (backend, state), count in Tally((attempt.backend, attempt.state) for attempt in attempts).items():
            self.open.labels(backend, state).set(count)

    def text(self) -> str:
        """The exposition format."""
        return generate_latest(self.registry).decode()


def total(counter: Counter, **labels: str) -> int:
    """The sum of a counter over all its labels, or over those with these values."""
    samples = (sample for metric in counter.collect() for sample in metric.samples if sample.name.endswith("_total"))
    return round(sum(one.value for one in samples if labels.items() <= one.labels.items()))


class MetricsPage:
    """`/metrics` at its own address, as a context manager. Port 0 takes any free port; `port` has it."""

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
