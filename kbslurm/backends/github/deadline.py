"""A deadline for a whole exchange with a server. httpx limits each read separately, so a server that sends a byte now
and then, even of a header, would never time out.
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
    """This exchange took too long."""


class Deadline(httpcore.NetworkBackend):
    """A client's connections with deadlines for whole exchanges. `within` sets the deadline for the calling thread."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._inner = httpcore.SyncBackend()
        self._of = threading.local()

    def over(self, client: httpx.Client) -> httpx.Client:
        """The client, including its proxy connections, under this deadline."""
        # httpx has no option for this, but httpcore below it does.
        for transport in (client._transport, *client._mounts.values()):
            if isinstance(transport, httpx.HTTPTransport):
                transport._pool._network_backend = self
        return client

    @contextmanager
    def within(self, most_s: float) -> Iterator[None]:
        """Requests in here are answered within this many seconds, or TooSlow is raised."""
        self._of.until = self._monotonic() + most_s
        try:
            yield
        finally:
            self._of.until = None

    def left_s(self, timeout: float | None) -> float | None:
        """How long the next step may take; TooSlow if no time is left."""
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
    """A connection whose steps are limited to the remaining time."""

    def __init__(self, inner: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            return self._inner.read(max_bytes, self._deadline.left_s(timeout))
        except httpcore.ReadTimeout:
            self._deadline.left_s(timeout)  # which limit was hit: the step's or the whole one
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
