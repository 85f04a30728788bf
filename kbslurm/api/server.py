"""uvicorn as this service runs it: one process, long keep-alive for slow pollers, an orderly shutdown."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import uvicorn

from kbslurm import wiring
from kbslurm.api.addresses import networks
from kbslurm.api.app import create_app
from kbslurm.api.connections import ConnectionLimits, Connections
from kbslurm.api.context import Context
from kbslurm.api.listener import EventListener
from kbslurm.api.metrics import ApiMetrics
from kbslurm.api.protocol import protocol_for
from kbslurm.config import reloading, secret_values
from kbslurm.errors import KbslurmError, Misconfigured
from kbslurm.observe import logs
from kbslurm.observe.logs import teller
from kbslurm.observe.metrics import MetricsPage

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.ports import Clock
    from kbslurm.store.postgres import PostgresStore

tell = teller("api")
# popcorn-cli polls every 5 s on one connection and doesn't retry if it has been closed.
KEEP_ALIVE_S = 120
STOP_WITHIN_S = 15
HEAD_CAP = 32_768
BACKLOG = 2048
SEND_BUFFER = 65_536


class WallClock:
    """This machine's time."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def context_of(config: Config, store: PostgresStore, *, clock: Clock | None = None) -> Context:
    """The context for this configuration."""
    metrics, time = ApiMetrics(), clock or WallClock()
    listener = EventListener(store, met=metrics.met)
    server = config.server
    connections = Connections(ConnectionLimits.of(server), networks(server.trusted_proxies), metrics.turn_away)
    metrics.look_at(store, listener, time, connections)
    return Context(
        store=store,
        config=config,
        clock=time,
        listener=listener,
        slots=wiring.slots(config),
        offers=wiring.offers(config),
        metrics=metrics,
        connections=connections,
    )


class _Server(uvicorn.Server):
    """Streams and scans are told to end before uvicorn waits for them, and signals are left to the caller."""

    def __init__(self, config: uvicorn.Config, context: Context) -> None:
        super().__init__(config)
        self._context = context

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._context.listener.close()
        self._context.scans.close()
        self._context.connections.entrance.let_all_in()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving:
    """A server in its own thread, as a context manager. Port 0 takes any free port; `url` has it."""

    def __init__(self, context: Context, *, host: str, port: int, app: Any = None) -> None:
        self._socket = _bound(host, port)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}"
        self._server = _Server(
            uvicorn.Config(
                app or create_app(context),
                http=protocol_for(context.connections),
                ws="none",
                loop="asyncio",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=STOP_WITHIN_S,
                h11_max_incomplete_event_size=HEAD_CAP,
                proxy_headers=False,  # the rate limiter does this, using server.trusted_proxies
            ),
            context,
        )
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="api")

    def __enter__(self) -> Serving:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    @property
    def is_alive(self) -> bool:
        """Whether it is still serving."""
        return self._thread.is_alive()


def settle() -> None:
    """For a process that serves from now on: leave what lives as long as it does out of garbage collection. Each full
    one of all that would hold up every answer for 0.1 to 0.2 s."""
    gc.collect()
    gc.freeze()


def run_api(
    config: Config,
    stop: threading.Event,
    *,
    log_json: bool = False,
    verbose: bool = False,
    reload: threading.Event | None = None,
) -> None:
    """Serve this configuration until `stop`. Whenever `reload` is set, it is read anew; one that can't be used changes
    nothing."""
    logs.set_up(as_json=log_json, level="debug" if verbose else "info", secrets=secret_values.known)
    host, _, port = config.server.listen.rpartition(":")
    _read_tokens(config)
    with wiring.opened_store(config) as store:
        context = context_of(config, store)
        if not context.connections.fit_open_files():
            tell(
                "fewer files may be open than server.connections needs, so fewer connections are allowed",
                level="warning",
                connections=context.connections.limits.connections,
            )
        with _metrics_page(config, context), Serving(context, host=host.strip("[]"), port=int(port)) as serving:
            settle()
            tell("serving", url=config.server.public_url or serving.url)
            while not stop.wait(1.0):
                if reload is not None and reload.is_set():
                    reload.clear()
                    _reload(context)
                context.node_keys.read_missing(context.config)
                if not serving.is_alive:
                    raise Misconfigured("the API stopped unexpectedly", fix="See its output above.")
            tell("stopping")


def _read_tokens(config: Config) -> None:
    """Read what every call is compared with, so that no caller waits for a command, and one that fails is told here."""
    for name in ("POPCORN_ADMIN_TOKEN", "KBSLURM_BOT_TOKEN"):
        config.secret(name)


def _reload(context: Context) -> None:
    try:
        config, restart = reloading.again(context.config)
        _read_tokens(config)
        slots, offers = wiring.slots(config), wiring.offers(config)
    except KbslurmError as error:
        why = error.message + (f" ({error.hint})" if error.hint else "")
        tell("the configuration wasn't reloaded", level="warning", why=why, holds="the earlier one")
        return
    if config.database_url is not None and not context.store.use_url(config.database_url):
        restart = [*restart, "DATABASE_URL"]
    context.take(config, slots, offers)
    tell("reloaded", restart=", ".join(restart) or "nothing")


def _metrics_page(config: Config, context: Context) -> AbstractContextManager[object]:
    if not config.server.metrics:
        return contextlib.nullcontext()
    host, _, port = config.server.metrics.rpartition(":")
    return MetricsPage(context.metrics.registry, host=host.strip("[]"), port=int(port), key="server.metrics")


def _bound(host: str, port: int) -> socket.socket:
    # The protocol is named so that asyncio sets TCP_NODELAY and small answers leave immediately.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        # Otherwise the kernel takes megabytes for each client that reads nothing, and writing them delays the others.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        found.bind((host, port))
        found.listen(BACKLOG)  # connections made before uvicorn has started wait in the backlog
    except OSError as error:
        found.close()
        raise Misconfigured(
            f"the API can't listen on {host}:{port} ({error.strerror or error})",
            fix="Free the port, or change server.listen.",
        ) from error
    return found
