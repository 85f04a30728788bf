"""A deadline for a whole exchange with a server. httpx bounds each read by itself, so that one who sends a byte now and
then, be it only of a header, would be listened to without end.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

CHUNK = 1 << 16


class TooSlow(Exception):
    """The time for this exchange is over."""


class Deadline(httpcore.NetworkBackend):
    """Connections of a client whose exchanges end in time. `within` says by when, for the calling thread."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._inner = httpcore.SyncBackend()
        self._of = threading.local()

    def over(self, client: httpx.Client) -> httpx.Client:
        """The client, its connections by proxies included, under this deadline."""
        # httpx has no word for this, httpcore below it has one.
        for transport in (client._transport, *client._mounts.values()):
            if isinstance(transport, httpx.HTTPTransport):
                transport._pool._network_backend = self
        return client

    @contextmanager
    def within(self, most_s: float) -> Iterator[None]:
        """What is asked in here has been answered after so many seconds, or TooSlow is raised."""
        self._of.until = self._monotonic() + most_s
        try:
            yield
        finally:
            self._of.until = None

    def left_s(self, timeout: float | None) -> float | None:
        """How long the next step may take; TooSlow when there is nothing left."""
        until: float | None = getattr(self._of, "until", None)
        if until is None:
            return timeout
        left = until - self._monotonic()
        if left <= 0:
            raise TooSlow
        return left if timeout is None else min(timeout, left)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        found = self._inner.connect_tcp(host, port, self.left_s(timeout), local_address, socket_options)
        return _Stream(found, self)

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class _Stream(httpcore.NetworkStream):
    """A connection, each step of which takes no longer than what is left."""

    def __init__(self, inner: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            return self._inner.read(max_bytes, self._deadline.left_s(timeout))
        except httpcore.ReadTimeout:
            self._deadline.left_s(timeout)  # whose time was over: the step's, or all of it
            raise

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for at in range(0, len(buffer), CHUNK):
            self._inner.write(buffer[at : at + CHUNK], self._deadline.left_s(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        found = self._inner.start_tls(ssl_context, server_hostname, self._deadline.left_s(timeout))
        return _Stream(found, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
