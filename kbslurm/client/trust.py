"""Whose certificates a connection accepts. To read the list of authorities takes 50 ms of a processor, more than a call
itself, so it is read once per process, and not at all for an address without TLS."""

from __future__ import annotations

import functools
import os
import ssl

import httpx

_NAMED_BY = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def trusted(url: str = "", *, trust_env: bool = True) -> ssl.SSLContext:
    """What a client is given as `verify`. `url`: all that it asks lies there; `trust_env`: whether the environment may
    name the list."""
    if url.lower().startswith("http://"):
        return _nobody()
    named = tuple(os.environ.get(name) for name in _NAMED_BY) if trust_env else ()
    return _read(trust_env, named)


@functools.cache
def _nobody() -> ssl.SSLContext:
    """Should such a connection come to need TLS after all, it is refused."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@functools.lru_cache(maxsize=4)
def _read(trust_env: bool, named: tuple[str | None, ...]) -> ssl.SSLContext:
    """`named` is what the answer depends on."""
    return httpx.create_ssl_context(trust_env=trust_env)
