"""Limits per address: how many requests, how many at once, and how many with an unknown token.

Limits per person are in the database (see `domain.policy`); these are in memory, one set per process, and only keep one
address from using up the service. They are generous, since a whole university may share one address. Behind a trusted
proxy, the address is the one that the proxy names. Rates don't hold for this machine's own addresses, since behind a
local proxy that names nobody everyone would have one of those; how much is open at once holds for them too.

Where one of many at an address uses up its requests or tries unknown tokens, those whose token was valid lately aren't
kept out: each of them then has an allowance of their own.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kbslurm.api.addresses import Address, Network, address, behind, is_in, key
from kbslurm.api.connections import Connections
from kbslurm.api.incoming import incoming_of
from kbslurm.api.known_secrets import KnownSecrets
from kbslurm.api.protocol import connection_of
from kbslurm.store import origin

MOST_KNOWN = 50_000
MARK = "kbslurm.rate_limits"
SECRETS = (b"x-popcorn-cli-id", b"x-web-auth-id", b"authorization")


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A burst size, and a rate per minute."""

    burst: float
    per_minute: float


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The rates of one address; `person`: of one known token, once its address has no more requests."""

    requests: Limit = field(default_factory=lambda: Limit(burst=6000, per_minute=6000))
    sign_on: Limit = field(default_factory=lambda: Limit(burst=1200, per_minute=60))
    register: Limit = field(default_factory=lambda: Limit(burst=600, per_minute=10))
    strangers: Limit = field(default_factory=lambda: Limit(burst=300, per_minute=120))
    person: Limit = field(default_factory=lambda: Limit(burst=120, per_minute=60))

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
        connections: Connections,
        known: KnownSecrets,
        refused: Callable[[Request, str, int, dict[str, str] | None], Response],
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app, self._trusted, self._limits, self._refused = app, trusted, limits, refused
        self._connections, self._known = connections, known
        self._requests = Buckets(limits.requests, steady)
        self._sign_on = Buckets(limits.sign_on, steady)
        self._register = Buckets(limits.register, steady)
        self._strangers = Buckets(limits.strangers, steady)
        self._people = Buckets(limits.person, steady)
        self._open: dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        client = self._come_in(scope)
        with origin.acting("api", (scope.get("client") or ("", 0))[0]):
            if client is None:
                await self.app(scope, receive, send)
            else:
                await self._limited(client, scope, receive, send)

    async def _limited(self, client: Address, scope: Scope, receive: Receive, send: Send) -> None:
        who = incoming_of(scope).client = key(client)
        if (said := self._too_much(who, client, scope)) is not None:
            await self._turn_away(scope, receive, send, *said)
            return
        # One dict, shared by everything that copies this scope.
        scope[MARK] = {"known": False}
        self._open[who] = self._open.get(who, 0) + 1
        try:
            await self.app(scope, receive, send if client.is_loopback else self._watched(who, scope, send))
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]

    def _come_in(self, scope: Scope) -> Address | None:
        """The client; from here on, what a trusted proxy says about it is believed."""
        peer = address((scope.get("client") or ("", 0))[0])
        if peer is None or not is_in(peer, self._trusted):
            return peer
        found = behind(_values(scope, b"x-forwarded-for"), self._trusted)
        scheme = _values(scope, b"x-forwarded-proto")
        if scheme and scheme[-1] in ("http", "https"):
            scope["scheme"] = scheme[-1]
        if found is not None:
            scope["client"] = (str(found), 0)
        return found or peer

    def _too_much(self, who: str, client: Address, scope: Scope) -> tuple[str, float] | None:
        most = self._connections.limits.per_client
        if self._open.get(who, 0) >= most or not self._may_connect(who, scope):
            return f"your address already has {most} open requests or connections", 5.0
        return None if client.is_loopback else self._too_often(who, scope)

    def _may_connect(self, who: str, scope: Scope) -> bool:
        """A proxy's connections are its own affair; but a trusted address that speaks for itself is a client."""
        connection = connection_of(scope)
        if connection is None or connection.peer != who:
            return True
        return self._connections.is_its_own(connection) is None

    def _too_often(self, who: str, scope: Scope) -> tuple[str, float] | None:
        name = self._known_name(scope)
        if (wait_s := self._requests.take(who)) and (name is None or (wait_s := self._people.take(name))):
            return "too many requests from your address", wait_s
        kind = kind_of(scope["method"], scope["path"])
        if kind == "sign on" and (wait_s := self._sign_on.take(who)):
            return "too many sign-in attempts from your address", wait_s
        if kind == "register" and (wait_s := self._register.take(who)):
            return "too many devices registered from your address", wait_s
        if name is None and _has_secret(scope) and (wait_s := self._strangers.wait_s(who)):
            return "too many unknown tokens from your address", wait_s
        return None

    def _known_name(self, scope: Scope) -> str | None:
        """Who shows a token that was valid lately, and no other secret beside it that wasn't."""
        shown = [_secret(key, value) for key, value in scope["headers"] if key in SECRETS]
        names = [self._known.name_of(secret) for secret in shown]
        return names[0] if names and None not in names else None

    def _watched(self, who: str, scope: Scope, send: Send) -> Send:
        async def sent(message: Message) -> None:
            refused = message["type"] == "http.response.start" and message["status"] == 401
            if refused and _has_secret(scope) and not scope[MARK]["known"]:
                self._strangers.take(who)
            await send(message)

        return sent

    async def _turn_away(self, scope: Scope, receive: Receive, send: Send, why: str, wait_s: float) -> None:
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


def kind_of(method: str, path: str) -> str:
    """`sign on`: requests that open or end a session, or could guess a secret. `register`: requests that make a token.
    Else nothing."""
    if path == "/auth/init":
        return "register"
    if path.startswith(("/auth/login/", "/auth/callback/", "/join/")):
        return "sign on"
    if method == "POST" and path in (
        "/login",
        "/me/link",
        "/user/join",
        "/user/invitation",
        "/admin/link",
        "/bot/link",
    ):
        return "sign on"
    return ""


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _has_secret(scope: Scope) -> bool:
    return any(name in SECRETS for name, _ in scope["headers"])


def _secret(name: bytes, value: bytes) -> str:
    text = value.decode("latin-1")
    return text.partition(" ")[2].strip() if name == b"authorization" else text
