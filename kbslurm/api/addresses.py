"""Clients' addresses: read, compared with the trusted proxies, and the unit that limits count."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
HOPS = 32
V6_PREFIX = 64  # the prefix that one household or machine gets, with all its addresses


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Addresses and networks, all as networks. ValueError if one isn't valid."""
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def address(text: str) -> Address | None:
    """The address in `1.2.3.4`, `1.2.3.4:5678`, `2001:db8::1` or `[2001:db8::1]:5678`; None if it isn't one."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(found, "ipv4_mapped", None)
    return found if mapped is None else mapped


def behind(chain: Sequence[str], trusted: Sequence[Network]) -> Address | None:
    """The client as our own proxies saw it: the last entry of X-Forwarded-For that isn't one of them. Earlier entries
    can be forged.

    None if there is none.
    """
    found: Address | None = None
    for text in reversed([part for line in chain for part in line.split(",")][-HOPS:]):
        one = address(text)
        if one is None:
            return found
        found = one
        if not is_in(one, trusted):
            return one
    return found


def key(client: Address) -> str:
    """The unit that is counted: an IPv4 address or an IPv6 /64 network."""
    if isinstance(client, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((client, V6_PREFIX), strict=False))
    return str(client)


def is_in(one: Address, among: Sequence[Network]) -> bool:
    """Whether the address is in one of these networks."""
    return any(one.version == network.version and one in network for network in among)
