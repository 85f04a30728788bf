"""Limits per address: how many requests, how many at once, and how many with an unknown token.

Limits per person are in the database (see `domain.policy`); these are in memory, one set per process, and only keep one
address from using up the service. They are generous, since a whole university may share one address. Behind a trusted
proxy, the address is the one that the proxy names; requests from this machine aren't counted.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kbslurm.api.upload import DRAIN_CAP, PATIENCE_S
from kbslurm.store import origin

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
MOST_KNOWN = 50_000
HOPS = 32
MARK = "kbslurm.rate_limits"
V6_PREFIX = 64  # the prefix that one household or machine gets, with all its addresses


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A burst size, and a rate per minute."""

    burst: float
    per_minute: float


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of one address. `at_once`: concurrent requests, including streams."""

    requests: Limit = field(default_factory=lambda: Limit(burst=6000, per_minute=6000))
    sign_on: Limit = field(default_factory=lambda: Limit(burst=120, per_minute=60))
    register: Limit = field(default_factory=lambda: Limit(burst=60, per_minute=10))
    strangers: Limit = field(default_factory=lambda: Limit(burst=300, per_minute=120))
    at_once: int = 512

    @classmethod
    def of(cls, requests_per_minute: int) -> Limits:
        """The defaults, with this many requests per minute."""
        return cls(requests=Limit(burst=requests_per_minute, per_minute=requests_per_minute))


class Buckets:
    """What is left of one limit, by address. The least recently seen are dropped: theirs would be full again."""

    def __init__(self, limit: Limit, steady: Callable[[], float]) -> None:
        self._limit, self._steady = limit, steady
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str, count: float = 1.0) -> float:
        """Take one: 0 if one was left, else the seconds until there will be one."""
        left, at = self._now(who)
        wait_s = max(0.0, count - left) * 60 / self._limit.per_minute
        self._left[who] = (left - count if wait_s == 0 else left, at)
        self._left.move_to_end(who)
        while len(self._left) > MOST_KNOWN:
            self._left.popitem(last=False)
        return wait_s

    def wait_s(self, who: str) -> float:
        """The same, without taking one."""
        return max(0.0, 1.0 - self._now(who)[0]) * 60 / self._limit.per_minute

    def _now(self, who: str) -> tuple[float, float]:
        at = self._steady()
        left, before = self._left.get(who, (self._limit.burst, at))
        return min(self._limit.burst, left + (at - before) * self._limit.per_minute / 60), at


class RateLimiter:
    """Around the app. `refused` turns a sentence into an answer; `trusted` are the trusted proxies."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        trusted: Sequence[Network],
        limits: Limits,
        refused: Callable[[Request, str, int, dict[str, str] | None], Response],
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app, self._trusted, self._limits, self._refused = app, trusted, limits, refused
        self._requests = Buckets(limits.requests, steady)
        self._sign_on = Buckets(limits.sign_on, steady)
        self._register = Buckets(limits.register, steady)
        self._strangers = Buckets(limits.strangers, steady)
        self._open: dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        who = self._come_in(scope)
        with origin.acting("api", (scope.get("client") or ("", 0))[0]):
            await self._limited(who, scope, receive, send)

    async def _limited(self, who: str | None, scope: Scope, receive: Receive, send: Send) -> None:
        if who is None:
            await self.app(scope, receive, send)
            return
        if (said := self._too_much(who, scope)) is not None:
            await self._turn_away(scope, receive, send, *said)
            return
        # One dict, shared by everything that copies this scope.
        scope[MARK] = {"known": False}
        self._open[who] = self._open.get(who, 0) + 1
        try:
            await self.app(scope, receive, self._watched(who, scope, send))
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]

    def _come_in(self, scope: Scope) -> str | None:
        """The address to count this for; from here on, what a trusted proxy says about its client is believed."""
        peer = address((scope.get("client") or ("", 0))[0])
        if peer is None:
            return None
        client = peer
        if is_in(peer, self._trusted):
            found = behind(_values(scope, b"x-forwarded-for"), self._trusted)
            scheme = _values(scope, b"x-forwarded-proto")
            if scheme and scheme[-1] in ("http", "https"):
                scope["scheme"] = scheme[-1]
            if found is not None:
                client = found
                scope["client"] = (str(client), 0)
        return None if client.is_loopback else key(client)

    def _too_much(self, who: str, scope: Scope) -> tuple[str, float] | None:
        if self._open.get(who, 0) >= self._limits.at_once:
            return f"your address already has {self._limits.at_once} open requests", 5.0
        if wait_s := self._requests.take(who):
            return "too many requests from your address", wait_s
        kind = kind_of(scope["method"], scope["path"])
        if kind == "sign on" and (wait_s := self._sign_on.take(who)):
            return "too many sign-in attempts from your address", wait_s
        if kind == "register" and (wait_s := self._register.take(who)):
            return "too many devices registered from your address", wait_s
        if _has_secret(scope) and (wait_s := self._strangers.wait_s(who)):
            return "too many unknown tokens from your address", wait_s
        return None

    def _watched(self, who: str, scope: Scope, send: Send) -> Send:
        async def sent(message: Message) -> None:
            refused = message["type"] == "http.response.start" and message["status"] == 401
            if refused and _has_secret(scope) and not scope[MARK]["known"]:
                self._strangers.take(who)
            await send(message)

        return sent

    async def _turn_away(self, scope: Scope, receive: Receive, send: Send, why: str, wait_s: float) -> None:
        # The rest of the request is read first: some clients lose an answer that comes before.
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await _drained(receive)
        after_s = max(1, round(wait_s + 0.5))
        said = f"{why}. Try again in {after_s} s."
        answer = self._refused(Request(scope), said, 429, {"Retry-After": str(after_s)})
        await answer(scope, receive, send)


def is_known(scope: Scope) -> None:
    """The caller showed a valid secret, so a refusal isn't counted as guessing.

    The bot calls for everyone from one address: one person who keeps asking for hosts' commands must not lock out the
    others.
    """
    scope.get(MARK, {})["known"] = True


async def _drained(receive: Receive) -> None:
    size, more = 0, True
    while more and size <= DRAIN_CAP:
        message: Any = await receive()
        size += len(message.get("body", b""))
        more = message["type"] == "http.request" and message.get("more_body", False)


def kind_of(method: str, path: str) -> str:
    """`sign on`: requests that open or end a session, or could guess a secret. `register`: requests that make a token.
    Else nothing."""
    if path == "/auth/init":
        return "register"
    if path.startswith(("/auth/login/", "/auth/callback/")):
        return "sign on"
    if method == "POST" and path in ("/login", "/me/link", "/user/join", "/admin/link", "/bot/link"):
        return "sign on"
    return ""


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


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _has_secret(scope: Scope) -> bool:
    return any(name in (b"x-popcorn-cli-id", b"x-web-auth-id", b"authorization") for name, _ in scope["headers"])
