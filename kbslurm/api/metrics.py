"""The API's metrics for Prometheus: counts of requests and answers; no paths, people or sources.

Every label has a fixed set of values, or one that only hosts can add to (GPU types), so that no request can make it
grow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kbslurm.api.connections import Connections, Why
from kbslurm.errors import (
    BackendTrouble,
    DeadlinePassed,
    Invalid,
    KbslurmError,
    Misconfigured,
    NotAccepting,
    NotFound,
    QuotaSpent,
    Refused,
    TooLarge,
    Unauthenticated,
)
from kbslurm_eval.shared.wire import Mode

if TYPE_CHECKING:
    from kbslurm.api.listener import EventListener
    from kbslurm.ports import Clock
    from kbslurm.store.postgres import PostgresStore

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ANSWER_BUCKETS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
OTHER = "other"
UNMATCHED = "unmatched"
GONE = "gone"
LOOK_EVERY_S = 5.0
# The first match: a submission's outcome, by what refused it.
REFUSALS: tuple[tuple[type[Exception], str], ...] = (
    (ClientDisconnect, "gone"),
    (DeadlinePassed, "deadline"),
    (QuotaSpent, "quota"),
    (NotAccepting, "paused"),
    (Unauthenticated, "unauthenticated"),
    (Refused, "refused"),
    (TooLarge, "too_large"),
    (Invalid, "invalid"),
    (NotFound, "unknown"),
    (BackendTrouble, "trouble"),
)
DATABASE, ELSEWHERE, MISCONFIGURED, BUG = "database", "elsewhere", "misconfigured", "bug"


class ApiMetrics:
    """One API's metrics, in their own registry."""

    def __init__(self) -> None:
        # when each series began: a fifth of the answer, and nobody's question
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "kbslurm_api_requests", "Requests answered", ["method", "route", "status"], registry=self.registry
        )
        self.answer_s = Histogram(
            "kbslurm_api_request_seconds",
            "Time until the answer begins",
            ["route"],
            buckets=ANSWER_BUCKETS,
            registry=self.registry,
        )
        self.submissions = Counter(
            "kbslurm_api_submissions", "Submissions, by outcome", ["mode", "came"], registry=self.registry
        )
        self.body_bytes = Counter(
            "kbslurm_api_body_bytes", "Bytes of requests' bodies, read for a call or dropped", ["came"],
            registry=self.registry,
        )  # fmt: skip
        self.aborted_uploads = Counter(
            "kbslurm_api_aborted_uploads", "Requests whose client left before it had sent them", registry=self.registry
        )
        self.turned_away = Counter(
            "kbslurm_api_turned_away", "Connections and requests ended by a limit", ["why"], registry=self.registry
        )
        self.trouble = Counter("kbslurm_api_trouble", "Server-side errors", ["kind"], registry=self.registry)
        for kind in (DATABASE, ELSEWHERE, MISCONFIGURED, BUG):
            self.trouble.labels(kind)
        for came in ("read", "dropped"):
            self.body_bytes.labels(came)
        for why in (*get_args(Why), "host"):
            self.turned_away.labels(why)
        for mode in get_args(Mode):
            self.submissions.labels(mode, "accepted")

    def look_at(self, store: PostgresStore, listener: EventListener, clock: Clock, connections: Connections) -> None:
        """From now on every scrape also reports the database's state, its followers and the open connections."""
        held = Gauge("kbslurm_api_connections", "Open connections", registry=self.registry)
        held.set_function(lambda: connections.count)
        watchers = Gauge("kbslurm_api_watchers", "Open streams", ["of"], registry=self.registry)
        watchers.labels("submission").set_function(lambda: listener.followers()[0])
        watchers.labels("everything").set_function(lambda: listener.followers()[1])
        self.registry.register(_Rows(self, store, clock))

    def met(self, error: Exception) -> None:
        """Count an error that isn't the caller's."""
        match error:
            case BackendTrouble():
                self.trouble.labels(DATABASE if error.backend == DATABASE else ELSEWHERE).inc()
            case Misconfigured():
                self.trouble.labels(MISCONFIGURED).inc()
            case KbslurmError() | ClientDisconnect():
                pass
            case _:
                self.trouble.labels(BUG).inc()

    @contextmanager
    def submitting(self, mode: str) -> Iterator[None]:
        """Count a submission's outcome."""
        try:
            yield
        except Exception as error:
            self.submission_refused(mode, error)
            raise
        self.submissions.labels(_named(mode), "accepted").inc()

    def submission_refused(self, mode: str, error: Exception) -> None:
        """Count a submission that wasn't accepted."""
        came = next((name for kind, name in REFUSALS if isinstance(error, kind)), BUG)
        self.submissions.labels(_named(mode), came).inc()

    def turn_away(self, why: Why | Literal["host"]) -> None:
        """Count a connection or request that a limit ended."""
        self.turned_away.labels(why).inc()

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)


def _named(mode: str) -> str:
    return mode.lower() if mode.lower() in get_args(Mode) else OTHER


class _Rows(Collector):
    """The database's state at a scrape, read at most every `LOOK_EVERY_S`: queue, leader, or that it is unreachable."""

    def __init__(self, metrics: ApiMetrics, store: PostgresStore, clock: Clock) -> None:
        self._metrics, self._store, self._clock = metrics, store, clock
        self._lock = threading.Lock()
        self._known: list[Metric] = []
        self._looked_at: float | None = None

    def describe(self) -> Iterable[Metric]:
        return ()  # otherwise registering would query the database

    def collect(self) -> Iterable[Metric]:
        # While the database hangs, one scrape waits for it; the others get the last known values.
        if self._lock.acquire(blocking=False):
            try:
                if self._looked_at is None or time.monotonic() - self._looked_at >= LOOK_EVERY_S:
                    self._known = self._look()
                    self._looked_at = time.monotonic()
            finally:
                self._lock.release()
        return self._known

    def _look(self) -> list[Metric]:
        up = GaugeMetricFamily("kbslurm_api_database_up", "1 while the database is reachable")
        try:
            waiting = self._store.queue.waiting()
            leads = any(lease.expires_at > self._clock.now() for lease in self._store.leases.all())
        except Exception as error:  # noqa: BLE001 - a scrape always tells what it can
            self._metrics.met(error)
            up.add_metric([], 0)
            return [up]
        up.add_metric([], 1)
        queue = GaugeMetricFamily("kbslurm_api_runs_waiting", "Queued runs, from the database", labels=["gpu"])
        for gpu, count in waiting.items():
            queue.add_metric([gpu], count)
        led = GaugeMetricFamily("kbslurm_api_daemon_leads", "1 while some daemon or timer leads, from the database")
        led.add_metric([], 1 if leads else 0)
        return [up, queue, led]


class Measured:
    """Around everything: counts each request by its route's template, and times it until its answer begins."""

    def __init__(self, app: ASGIApp, metrics: ApiMetrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        answered = False

        def count(status: str) -> None:
            nonlocal answered
            answered = True
            route, method = template(scope), scope["method"]
            self.metrics.requests.labels(method if method in METHODS else OTHER, route, status).inc()
            self.metrics.answer_s.labels(route).observe(time.perf_counter() - began)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and not answered:
                count(str(message["status"]))
            await send(message)

        try:
            await self.app(scope, receive, sent)
        except ClientDisconnect:
            pass  # nobody is left to tell
        except Exception:
            if not answered:
                count("500")
            raise
        if not answered:
            count(GONE)


def template(scope: Scope) -> str:
    """The route's path with its {parameters}, never the path that was sent; `unmatched` if no route matched."""
    route: Any = scope.get("route")
    found = getattr(route, "path", None)
    return found if isinstance(found, str) else UNMATCHED
