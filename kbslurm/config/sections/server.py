"""[server]: the HTTP API."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

from kbslurm.config.sections.checks import listen_address, web_address
from kbslurm.errors import Invalid

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*")


def _networks(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise Invalid(
                f"{text!r} isn't a valid address or network", hint='Write ["127.0.0.1", "10.3.0.0/16"].'
            ) from None
    return texts


def _host_names(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if not _NAME.fullmatch(text):
            raise Invalid(f"{text!r} isn't a valid host name", hint='Write ["kernels.example.edu", "10.3.0.7"].')
    return texts


@dataclass(frozen=True, kw_only=True)
class ServerSection:
    """The HTTP API and the web pages."""

    listen: str = field(default="127.0.0.1:8000", metadata={"doc": "Host and port.", "check": listen_address})
    public_url: str = field(
        default="",
        metadata={"doc": "The URL under which others reach it; empty: the address itself.", "check": web_address},
    )
    metrics: str = field(
        default="",
        metadata={
            "doc": "Host and port for Prometheus, without a token; empty: only /metrics at `listen`, for hosts.",
            "check": listen_address,
        },
    )
    trusted_proxies: tuple[str, ...] = field(
        default=("127.0.0.0/8", "::1"),
        metadata={
            "doc": "The proxies whose X-Forwarded-For and -Proto are trusted: addresses or networks.",
            "check": _networks,
        },
    )
    design_page: bool = field(
        default=False, metadata={"doc": "Show /design, every part that pages are made of, on a development server."}
    )
    requests_per_minute: int = field(
        default=6000,
        metadata={"doc": "How many requests per minute are answered for one address (IPv6: /64).", "least": 60},
    )
    allowed_hosts: tuple[str, ...] = field(
        default=(),
        metadata={
            "doc": "Further names under which it is reached, without port. Requests with another Host get 421.",
            "check": _host_names,
        },
    )
    connections: int = field(
        default=4096,
        metadata={"doc": "How many connections may be open. The last 32nd is for hosts and /health.", "least": 64},
    )
    connections_per_client: int = field(
        default=1024,
        metadata={"doc": "How many connections and requests one address may have open, streams included.", "least": 8},
    )
    unfinished_per_client: int = field(
        default=256,
        metadata={"doc": "How many of those may still be sending their headers or body.", "least": 4},
    )
    head_within_s: float = field(default=20.0, metadata={"doc": "How long a request's headers may take.", "least": 1.0})
    body_within_s: float = field(default=60.0, metadata={"doc": "How long a request's body may take.", "least": 1.0})
    read_within_s: float = field(
        default=60.0, metadata={"doc": "How long a client may read nothing of its answer.", "least": 1.0}
    )
