"""Who is counted for what by the API's rate limits, and what happens when it is too much."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kbslurm.api import known_secrets, rate_limits
from kbslurm.api.addresses import key, networks
from kbslurm.api.connections import ConnectionLimits, Connections
from kbslurm.api.incoming import HeardOut
from kbslurm.api.known_secrets import KnownSecrets
from kbslurm.api.metrics import ApiMetrics
from kbslurm.api.rate_limits import Buckets, Limit, Limits, RateLimiter, is_known
from kbslurm.store.tokens import MOST_PENDING

PROXIES = networks(["127.0.0.0/8", "::1", "10.3.0.0/16"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "counted"),
    [
        ("203.0.113.9", [], "203.0.113.9"),
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),  # nobody's proxy: hearsay
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.2", [], "127.0.0.2"),
        ("127.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", ["1.1.1.1, 198.51.100.1"], "198.51.100.1"),  # what the client itself wrote stands before
        ("127.0.0.1", ["1.1.1.1", "198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", ["198.51.100.1, 10.3.7.7"], "198.51.100.1"),  # through two of ours
        ("10.3.0.1", ["10.3.7.7"], "10.3.7.7"),
        ("127.0.0.1", ["198.51.100.1:4711"], "198.51.100.1"),
        ("127.0.0.1", ["[2001:db8:1:2:3::4]:99"], "2001:db8:1:2::/64"),
        ("127.0.0.1", ["2001:db8:1:2:ffff::1"], "2001:db8:1:2::/64"),
        ("127.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", ["1.1.1.1, unknown"], "127.0.0.1"),
        ("127.0.0.1", ["127.0.0.1"], "127.0.0.1"),
    ],
)
def test_who_is_counted(peer: str, forwarded: list[str], counted: str) -> None:
    scope: list[Any] = []
    built = Ask(peer=peer, forwarded=forwarded)
    built.go(seen=scope)
    client = built.limiter._come_in({**scope[0]})
    assert client and key(client) == counted
    for _ in range(9):
        built.go()
    assert (built.go()[0] == 429) == (not client.is_loopback), "rates don't hold for this machine"


def test_only_a_trusted_proxy_says_how_one_came() -> None:
    for peer, scheme in (("127.0.0.1", "https"), ("203.0.113.9", "http")):
        seen: list[Any] = []
        Ask(peer=peer, proto="https").go(seen=seen)
        assert seen[0]["scheme"] == scheme


def test_a_bucket_fills_again_and_knows_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    bucket = Buckets(Limit(burst=2, per_minute=60), lambda: now[0])
    assert [bucket.take("a") for _ in range(3)] == [0, 0, 1.0]
    assert bucket.take("b") == 0
    now[0] = 0.5
    assert bucket.take("a") == 0.5
    now[0] = 1.0
    assert bucket.take("a") == 0
    now[0] = 3600.0
    assert [bucket.take("a") for _ in range(3)] == [0, 0, 1.0], "never more than the burst"
    monkeypatch.setattr(rate_limits, "MOST_KNOWN", 10)
    for n in range(100):
        bucket.take(str(n))
    assert len(bucket._left) == 10


@pytest.mark.parametrize(
    ("method", "path", "status", "most"),
    [
        ("GET", "/leaderboards", 200, 9),
        ("POST", "/login", 403, 3),
        ("GET", "/auth/login/github", 200, 3),
        ("POST", "/user/join", 404, 3),
        ("POST", "/me/link", 400, 3),
        ("GET", "/auth/init", 200, 2),
        ("GET", "/user/me", 401, 4),
    ],
)
def test_each_thing_has_its_limit_and_another_address_has_its_own(
    method: str, path: str, status: int, most: int
) -> None:
    ask = Ask(peer="203.0.113.9", secret=True)
    told = [ask.go(method, path, status) for _ in range(most + 1)]
    assert [code for code, _ in told] == [status] * most + [429]
    assert int(told[-1][1]["retry-after"]) >= 1
    ask.peer = "203.0.113.10"
    assert ask.go(method, path, status)[0] == status
    ask.peer = "203.0.113.9"
    ask.now += 3600
    assert ask.go(method, path, status)[0] == status


def test_good_tokens_are_no_strangers_and_without_a_token_a_401_costs_nothing() -> None:
    ask = Ask(peer="203.0.113.9", secret=True)
    assert {ask.go("GET", "/user/me", 200)[0] for _ in range(9)} == {200}
    ask = Ask(peer="203.0.113.9")
    assert {ask.go("GET", "/admin/stats", 401)[0] for _ in range(9)} == {401}


def test_who_is_known_may_be_refused_for_ever() -> None:
    ask = Ask(peer="203.0.113.9", secret=True)
    ask.is_known = True
    assert {ask.go("POST", "/admin/stop", 401)[0] for _ in range(9)} == {401}


def test_whoever_shares_an_address_with_a_stranger_is_not_kept_out_by_them() -> None:
    ask = Ask(peer="203.0.113.9", secret=True)
    good, bad = ask.headers, [(b"x-popcorn-cli-id", b"guess")]
    ask.known.note("t", is_valid=True)
    for headers, status in ((bad, 401), (good, 200), (bad, 429), (good, 200), ([*good, *bad], 429), (bad, 429)):
        ask.headers = headers
        asked = [ask.go("GET", "/user/me", 401 if headers == bad else 200)[0] for _ in range(4 if status == 401 else 1)]
        assert set(asked) == {status}, (headers, asked)
    ask.headers = good  # the address's requests are used up: now each has their own few
    assert [ask.go()[0] for _ in range(4)] == [200, 200, 200, 429]
    ask.known.note("another's", is_valid=True)
    ask.headers = [(b"authorization", b"Bearer another's")]
    assert ask.go()[0] == 200
    ask.known.note("another's", is_valid=False)
    assert ask.go()[0] == 429


def test_a_course_of_five_hundred_behind_one_address_registers_and_signs_in_at_the_same_time() -> None:
    limits = Limits()
    register, sign_on = Buckets(limits.register, lambda: 0.0), Buckets(limits.sign_on, lambda: 0.0)
    assert {register.take("nat") for _ in range(500)} == {0}
    assert {sign_on.take("nat") for _ in range(2 * 500)} == {0}, "to the provider and back"
    an_hour = limits.register.burst + 60 * limits.register.per_minute
    assert 4 * an_hour <= MOST_PENDING, "yet no single address uses up the room for tokens that wait to be linked"


def test_only_so_many_secrets_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_secrets, "MOST", 2)
    known = KnownSecrets()
    for secret in "abac":
        known.note(secret, is_valid=True)
    assert [known.name_of(one) is not None for one in "abc"] == [True, False, True]


def test_so_many_are_open_at_once_and_no_more_and_each_gives_its_place_back() -> None:
    async def crowd() -> list[int]:
        ask = Ask(peer="203.0.113.9")
        ask.gate = asyncio.Event()
        waiting = [asyncio.create_task(ask.ask("GET", "/events", 200)) for _ in range(5)]
        await ask.all_in.wait()
        refused, _ = await ask.ask("GET", "/events", 200)
        ask.gate.set()
        done = [code for code, _ in await asyncio.gather(*waiting)]
        assert not ask.limiter._open
        return [refused, *done]

    assert asyncio.run(crowd()) == [429, 200, 200, 200, 200, 200]


def test_who_is_turned_away_is_heard_out_first() -> None:
    ask = Ask(peer="203.0.113.9")
    for _ in range(9):
        ask.go()
    ask.pieces = [b"x" * 10, b"y" * 10, b""]
    ask.headers.append((b"content-length", b"20"))
    assert ask.go("POST", "/submission/b/H100/test", 202)[0] == 429
    assert ask.pieces == []


class Ask:
    """Requests to a limiter with small limits, before an app that answers what it is told to."""

    def __init__(self, *, peer: str, forwarded: list[str] | None = None, proto: str = "", secret: bool = False) -> None:
        self.peer, self.now = peer, 0.0
        self.headers = [(b"x-forwarded-for", line.encode()) for line in forwarded or ()]
        self.headers += [(b"x-forwarded-proto", proto.encode())] if proto else []
        self.headers += [(b"x-popcorn-cli-id", b"t")] if secret else []
        self.gate: asyncio.Event | None = None
        self.all_in = asyncio.Event()
        self.inside, self.status, self.pieces, self.is_known = 0, 200, [b""], False
        self.seen: list[Any] = []
        small = Limits(
            requests=Limit(burst=9, per_minute=60),
            sign_on=Limit(burst=3, per_minute=6),
            register=Limit(burst=2, per_minute=6),
            strangers=Limit(burst=4, per_minute=6),
            person=Limit(burst=3, per_minute=6),
        )
        self.known = KnownSecrets()
        self.connections = Connections(ConnectionLimits(per_client=5))
        self.limiter = RateLimiter(
            self._app,
            trusted=PROXIES,
            limits=small,
            connections=self.connections,
            known=self.known,
            refused=_said,
            steady=lambda: self.now,
        )

    def go(
        self, method: str = "GET", path: str = "/", status: int = 200, *, seen: list[Any] | None = None
    ) -> tuple[int, dict[str, str]]:
        told = asyncio.run(self.ask(method, path, status))
        if seen is not None:
            seen += self.seen
        return told

    async def ask(self, method: str, path: str, status: int) -> tuple[int, dict[str, str]]:
        self.status, starts = status, []
        scope = {
            "type": "http", "method": method, "path": path, "headers": self.headers, "query_string": b"",
            "client": (self.peer, 1), "scheme": "http", "server": ("h", 80),
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            piece = self.pieces.pop(0) if self.pieces else b""
            return {"type": "http.request", "body": piece, "more_body": bool(self.pieces)}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                starts.append(message)

        await HeardOut(self.limiter, connections=self.connections, metrics=ApiMetrics())(scope, receive, send)
        (start,) = starts
        return start["status"], {k.decode(): v.decode() for k, v in start["headers"]}

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope)
        if self.is_known:
            is_known({**scope})
        self.inside += 1
        if self.inside == 5:
            self.all_in.set()
        if self.gate is not None:
            await self.gate.wait()
        await Response(status_code=self.status)(scope, receive, send)


def _said(request: Request, detail: str, status: int, headers: dict[str, str] | None) -> Response:
    return JSONResponse({"detail": detail}, status, headers)
