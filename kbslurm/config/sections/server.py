"""[server]: the HTTP API."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from kbslurm.config.sections.checks import listen_address, web_address
from kbslurm.errors import Invalid


def _networks(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise Invalid(
                f"{text!r} isn't a valid address or network", hint='Write ["127.0.0.1", "10.3.0.0/16"].'
            ) from None
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
    requests_per_minute: int = field(
        default=6000,
        metadata={"doc": "How many requests per minute are answered for one address (IPv6: /64).", "least": 60},
    )
