"""Requests made of a seed and a number: who sends what, how it is framed, and how its sender behaves on the socket."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import quote, urlencode

from tests.fuzz import values
from tests.fuzz.calls import Call, Parameter

Manner = Literal["kept", "alone", "httpx", "pieces", "half closed", "hung up", "reset", "pipelined"]
Framing = Literal[
    "plain",
    "chunked",
    "no length",
    "too short",
    "too long",
    "both",
    "bad chunk",
    "huge chunk",
    "cut chunk",
    "two lengths",
]
ACTING = "X-Kbslurm-Acting-For"
ROLES = "X-Kbslurm-Discord-Roles"
# Who sends it: headers in which `@{name}@` stands for a secret of this world.
WHO: Mapping[str, Sequence[tuple[str, str]]] = {
    "nobody": (),
    "ada": (("X-Popcorn-Cli-Id", "@{ada}@"),),
    "eve": (("X-Popcorn-Cli-Id", "@{eve}@"),),
    "eve by web": (("X-Web-Auth-Id", "@{eve}@"),),
    "eve as ada": (("X-Popcorn-Cli-Id", "@{eve}@"), ("Authorization", "Bearer @{eve}@"), (ACTING, "person:ada")),
    "eve with a role": (("X-Popcorn-Cli-Id", "@{eve}@"), (ROLES, "1:2")),
    "mallory, banned": (("X-Popcorn-Cli-Id", "@{mallory}@"), ("Authorization", "Bearer @{mallory}@")),
    "hal, a banned host": (("X-Popcorn-Cli-Id", "@{hal}@"), ("Authorization", "Bearer @{hal}@")),
    "host": (("Authorization", "Bearer @{admin}@"),),
    "host for eve": (("Authorization", "Bearer @{admin}@"), (ACTING, "person:eve")),
    "staff": (("X-Popcorn-Cli-Id", "@{grace}@"), ("Authorization", "Bearer @{grace}@")),
    "bot": (("Authorization", "Bearer @{bot}@"),),
    "bot for eve": (("Authorization", "Bearer @{bot}@"), (ACTING, "discord:8138"), (ROLES, "1:2")),
    "bot for staff": (("Authorization", "Bearer @{bot}@"), (ACTING, "discord:8139")),
    "ada's browser": (("Cookie", "kbslurm_session=@{ada session}@"),),
    "eve's browser": (("Cookie", "kbslurm_session=@{eve session}@"),),
    "staff's browser": (("Cookie", "kbslurm_session=@{grace session}@"),),
    "mallory's browser": (("Cookie", "kbslurm_session=@{mallory session}@"),),
    "eve's browser with a stolen form": (("Cookie", "kbslurm_session=@{eve session}@"),),
    "ada's session, revoked": (("Cookie", "kbslurm_session=@{revoked session}@"), ("X-Popcorn-Cli-Id",
    "@{revoked session}@")),
    "a token that waits": (("X-Popcorn-Cli-Id", "@{unlinked}@"), ("Authorization", "Bearer @{unlinked}@")),
    "a guessed token": (("X-Popcorn-Cli-Id", "k" * 43), ("Authorization", "Bearer None")),
}  # fmt: skip
NAMES = tuple(WHO)
CSRF = {"ada's browser": "ada", "eve's browser": "eve", "staff's browser": "grace", "mallory's browser": "mallory"}
STOLEN = "eve's browser with a stolen form"
HOSTS = frozenset({"host", "host for eve", "staff", "bot for staff"})
MULTIPART = "multipart/form-data; boundary=kbfuzz"
GOOD = b"def custom_kernel(data):\n    return data\n"
STRANGE_LINES = (
    b"GET /health", b"GET  /health HTTP/1.1", b"GET /health HTTP/9.9", b"GET /health HTTP/1.0", b"get /health HTTP/1.1",
    b"\x16\x03\x01\x02\x00", b"PRI * HTTP/2.0", b"OPTIONS * HTTP/1.1", b"CONNECT evil.example:443 HTTP/1.1",
    b"GET http://evil.example/health HTTP/1.1", b"GET //evil.example HTTP/1.1", b"GET health HTTP/1.1",
    b"GET /\x00 HTTP/1.1", b"GET /\xff\xfe HTTP/1.1", b"GET /hea\tlth HTTP/1.1", b" GET /health HTTP/1.1", b"\r\n\r\n",
    b"GET /%ff%fe/%00 HTTP/1.1", b"GET /board/%2e%2e/%2e%2e HTTP/1.1", b"GET /static/..%2f..%2fapp.py HTTP/1.1",
    b"BREW /health HTTP/1.1", b"TRACE / HTTP/1.1", b"PATCH /user/me HTTP/1.1", b"GET /?" + b"a=b&" * 500 + b" HTTP/1.1",
    b"GET /" + b"a" * 9_000 + b" HTTP/1.1", b"GET /" + b"a" * 70_000 + b" HTTP/1.1", b"G" * 3000 + b" / HTTP/1.1",
    b"GET /health?%zz HTTP/1.1", b"GET /health#frag HTTP/1.1", b"GET /health;x=1 HTTP/1.1",
)  # fmt: skip
STRANGE_HEADERS: Sequence[tuple[bytes, bytes]] = (
    (b"Host", b"evil.example"), (b"Host", b""), (b"Host", b"a b"), (b"X-Forwarded-For", b"1.2.3.4, ::1, x"),
    (b"X-Forwarded-Proto", b"gopher"), (b"X-Forwarded-Host", b"evil.example"), (b"Accept", b"text/html"),
    (b"Accept", b"*/*;q=0.0000000001"), (b"Accept-Encoding", b"gzip, br, zstd"), (b"Expect", b"100-continue"),
    (b"Expect", b"200-ok"), (b"Upgrade", b"websocket"), (b"Connection", b"Upgrade, HTTP2-Settings"), (b"Upgrade",
    b"h2c"),
    (b"Range", b"bytes=0-0,-1,5-2"), (b"If-None-Match", b"*"), (b"If-Modified-Since", b"never"), (b"TE", b"trailers"),
    (b"Cookie", b"kbslurm_session=; =; ;;; a=b; kbslurm_session=\xff"), (b"Cookie", b"kbslurm_login=x; " * 40),
    (b"Content-Type", b"application/json; charset=utf-16"), (b"Content-Type", b"text/plain"), (b"Content-Type",
    b"multipart/form-data"),
    (b"Content-Type", b"multipart/form-data; boundary=" + b"b" * 300), (b"Content-Type",
    b"application/x-www-form-urlencoded; charset=x"),
    (b"Content-Encoding", b"gzip"), (b"Origin", b"https://evil.example"), (b"Sec-Fetch-Site", b"cross-site"),
    (b"Referer", b"https://evil.example/"), (b"Authorization", b"Basic Og=="), (b"Authorization", b"Bearer"),
    (b"Authorization", b"Bearer \xff\xfe"),
    (b"Authorization", b"Bearer " + b"x" * 5000), (b"X-Popcorn-Cli-Id", b"\xc3\x28"), (b"X-Popcorn-Cli-Id",
    b"a" * 9000),
    (b"X-Kbslurm-Acting-For", b"person:\xff"), (b"X-Kbslurm-Acting-For", b"discord:" + b"9" * 400),
    (b"Last-Event-ID", b"\xb2"),
    (b"Last-Event-ID", b"9" * 30), (b"X-Http-Method-Override", b"DELETE"), (b"Forwarded", b"for=_x;proto=https"),
    (b"X-A", b"a\x00b"),
    (b"X-A", b"\x7f\x80\xff"), (b"X A", b"b"), (b"", b"b"), (b"X-A\x00", b"b"), (b"Transfer-Encoding",
    b"gzip, chunked"),
    (b"Transfer-Encoding", b"identity"), (b"Content-Length", b"+5"), (b"Content-Length", b"-1"), (b"Content-Length",
    b"9" * 30),
    (b"Content-Length", b"5, 6"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as it goes onto the wire. `whole`: it is well-formed and sent to its end, so an answer is owed."""

    number: int
    who: str
    call: str
    line: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes = b""
    framing: Framing = "plain"
    manner: Manner = "kept"
    whole: bool = True
    forged: bool = False  # a form without this session's own proof
    accepted: bool = False  # meant to be an accepted upload

    @property
    def method(self) -> str:
        return self.line.split(b" ", 1)[0].decode("latin-1")


def head(line: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    return line + b"\r\n" + b"".join(name + b": " + value + b"\r\n" for name, value in headers) + b"\r\n"


def made(seed: int, number: int, calls: Sequence[Call]) -> Request:
    """The request with this number. The same seed and table give the same one."""
    draw = random.Random(f"{seed}:{number}")
    which = draw.random()
    if which < 0.03:
        return _strange_line(draw, number)
    if which < 0.085:
        return _accepted(draw, number)
    return _of_call(draw, number, draw.choice(calls))


def _strange_line(draw: random.Random, number: int) -> Request:
    who = draw.choice(NAMES)
    headers = [(b"Host", b"@{host}@"), *_identity(who)]
    if draw.random() < 0.3:
        headers += _flood(draw)
    manner: Manner = draw.choice(("alone", "pieces", "half closed", "hung up", "reset"))
    line = draw.choice(STRANGE_LINES)
    return Request(
        number=number, who=who, call="a strange line", line=line, headers=headers, manner=manner, whole=False
    )


def _flood(draw: random.Random) -> list[tuple[bytes, bytes]]:
    count, size = draw.choice(((200, 10), (1500, 10), (50, 1000), (1, 40_000), (1, 70_000), (5, 7000)))
    return [(b"X-Flood-%d" % n, b"f" * size) for n in range(count)]


def _accepted(draw: random.Random, number: int) -> Request:
    """An upload that is accepted, or would be if nobody had paused or closed anything just now."""
    who = draw.choice(("ada", "eve", "eve by web", "host for eve", "bot for eve"))
    mode, gpu = draw.choice(("test", "benchmark", "leaderboard", "profile")), draw.choice(("H100", "A100", "h100"))
    path = draw.choice(("/submission/transpose/{gpu}/{mode}",
    "/user/submissions?leaderboard=transpose&gpu={gpu}&mode={mode}",
                        "/transpose/{gpu}/{mode}"))  # fmt: skip
    name = draw.choice(("k.py", "kernel.py", "größe.py", f"a{values.XSS}.py", "名.py", "a'b.py"))
    source = GOOD + f"# {draw.choice(values.TEXTS)}".encode("utf-8", "replace").replace(b"\0", b"") + b"\n"
    body = part(b"file", name.encode(), source) + b"--kbfuzz--\r\n"
    target = path.format(gpu=gpu, mode=mode)
    found = Request(
        number=number,
        who=who,
        call="an accepted upload",
        line=f"POST {target} HTTP/1.1".encode(),
        headers=[(b"Host", b"@{host}@"), *_identity(who), (b"Content-Type", MULTIPART.encode())],
        body=body,
        framing=draw.choice(("plain", "plain", "chunked")),
        manner=draw.choice(("kept", "kept", "alone", "httpx", "pieces", "hung up")),
        accepted=True,
    )
    return replace(found, whole=found.manner != "hung up")


def part(field: bytes, file_name: bytes | None, data: bytes, more: bytes = b"") -> bytes:
    named = b"" if file_name is None else b'; filename="%s"' % file_name
    return b'--kbfuzz\r\nContent-Disposition: form-data; name="%s"%s\r\n%s\r\n%s\r\n' % (field, named, more, data)


def _of_call(draw: random.Random, number: int, call: Call) -> Request:
    who = draw.choice(NAMES)
    fitting = draw.random() < 0.55
    headers: list[tuple[bytes, bytes]] = [(b"Host", b"@{host}@"), *_identity(who)]
    target = _target(draw, call, who, fitting)
    body, media, forged = _body(draw, call, who, fitting)
    if media:
        headers.append((b"Content-Type", media))
    for one in call.in_headers:
        if draw.random() < 0.25:
            headers.append((one.name.encode(), _header_value(draw, one)))
    if draw.random() < 0.2 or (
        call.path.startswith(("/board", "/s/", "/me", "/staff", "/problem")) and draw.random() < 0.6
    ):
        headers.append((b"Accept", b"text/html"))
    whole = True
    if draw.random() < 0.15:
        headers += [draw.choice(STRANGE_HEADERS) for _ in range(draw.randint(1, 3))]
        whole = False
    if draw.random() < 0.01:
        headers += _flood(draw)
        whole = False
    if draw.random() < 0.02:
        headers.append((b"Host", b"evil.example"))
        whole = False
    method = (
        call.method
        if draw.random() < 0.94
        else draw.choice(("HEAD", "OPTIONS", "GET", "POST", "PUT", "DELETE", "PATCH"))
    )
    found = Request(
        number=number,
        who=who,
        call=call.name,
        line=b"%s %s HTTP/1.1" % (method.encode(), target),
        headers=headers,
        body=body,
        forged=forged and method == "POST",
        framing="plain",
        manner=draw.choices(
            ("kept", "alone", "httpx", "pieces", "half closed", "hung up", "reset", "pipelined"),
            (60, 6, 5, 5, 6, 5, 5, 8),
        )[0],
        whole=whole,
    )
    return _framed(draw, found)


def _framed(draw: random.Random, found: Request) -> Request:
    if found.body and draw.random() < 0.3:
        framing: Framing = draw.choice(
            ("chunked", "chunked", "chunked", "no length", "too short", "too long", "both", "bad chunk", "huge chunk",
             "cut chunk", "two lengths")
        )  # fmt: skip
        found = replace(found, framing=framing, whole=found.whole and framing == "chunked")
    if found.manner in ("hung up", "reset", "half closed"):
        found = replace(found, whole=False)
    if found.manner == "httpx" and (not found.whole or found.framing not in ("plain", "chunked")):
        found = replace(found, manner="alone")
    if not found.whole and found.manner in ("kept", "pipelined"):
        found = replace(found, manner=draw.choice(("half closed", "alone")))
    return found


def _identity(who: str) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in WHO[who]]


def _target(draw: random.Random, call: Call, who: str, fitting: bool) -> bytes:
    path = call.path
    for one in call.in_path:
        path = path.replace(f"{{{one.name}}}", _escaped(draw, _value(draw, one, who, fitting or draw.random() < 0.6)))
    asked = []
    for one in call.in_query:
        if draw.random() < 0.5 or one.name == "name":
            for _ in range(draw.choice((1, 1, 1, 2))):
                asked.append((one.name, _value(draw, one, who, fitting or draw.random() < 0.4)))
    if draw.random() < 0.05:
        asked.append((values.hostile(draw), values.hostile(draw)))
    query = urlencode(
        [(name.encode("utf-8", "surrogatepass"), text.encode("utf-8", "surrogatepass")) for name, text in asked]
    )
    found = path + (f"?{query}" if query else "")
    if draw.random() < 0.03:
        found += draw.choice(("/", "//", "?", "%00", "/..", ";x", "%0d%0aX-Kb-Injected:%20yes"))
    return found.encode("utf-8", "surrogatepass").replace(b" ", b"%20")[:30_000]


def _value(draw: random.Random, one: Parameter, who: str, fitting: bool) -> str:
    if not fitting:
        return values.hostile(draw)
    known = values.KNOWN.get(one.name)
    if known and draw.random() < 0.9:
        found = draw.choice(known)
        # A host may show the private board to everybody, which no check could tell from a leak.
        return "open" if found == "vault" and may_act_as_host(who) else found
    found = values.fits(draw, one.name, one.schema)
    return found if isinstance(found, str) else json.dumps(found)


def may_act_as_host(who: str) -> bool:
    return who in HOSTS or who == "staff's browser"


def _escaped(draw: random.Random, text: str) -> str:
    if text.startswith("@{"):
        return text
    return quote(text.encode("utf-8", "surrogatepass"), safe="" if draw.random() < 0.9 else "/.:@")


def _header_value(draw: random.Random, one: Parameter) -> bytes:
    text = values.text(draw, one.name) if draw.random() < 0.6 else values.hostile(draw)
    return text.encode("utf-8", "surrogatepass").replace(b"\r", b"").replace(b"\n", b"")[:3000]


def _body(draw: random.Random, call: Call, who: str, fitting: bool) -> tuple[bytes, bytes, bool]:
    """Its bytes, its media type, and whether it is a form that isn't from this session's own page."""
    if call.takes_upload:
        return *_upload(draw, fitting), False
    if call.takes_form:
        return _form(draw, call, who, fitting)
    if call.body is None:
        return (
            (b"", b"", False)
            if draw.random() < 0.9
            else (values.hostile(draw).encode("utf-8", "replace"), b"text/plain", False)
        )
    return _json(draw, call.body, who, fitting), b"application/json", False


def _json(draw: random.Random, schema: Mapping[str, Any], who: str, fitting: bool) -> bytes:
    value = values.fits(draw, "", schema)
    if not fitting:
        value = values.spoilt(draw, value)
    if may_act_as_host(who) and isinstance(value, dict) and "vault" in str(value.get("leaderboards")):
        value["leaderboards"] = ["open"]
    text = json.dumps(value, ensure_ascii=draw.random() < 0.7)
    body = text.encode("utf-8", "surrogatepass")
    if not fitting and draw.random() < 0.15:
        body = draw.choice(
            (b"", b"{", b"[" * 3000, b"\xff\xfe{}", b"null", b"{}" * 3, body[:-1], b'{"a":1,"a":2}', b"\x00" * 9,
            b"1e999999",
             b'"' + b"\\u0000" * 40 + b'"', text.encode("utf-16", "surrogatepass"),
             b'{"code": 1' + b"0" * 5000 + b"}")
        )  # fmt: skip
    return body


def _form(draw: random.Random, call: Call, who: str, fitting: bool) -> tuple[bytes, bytes, bool]:
    own = CSRF.get(who)
    proof = draw.choice(("own", "own", "own", "forged", "none"))
    if who == STOLEN:
        proof = "stolen"
    told = []
    for name in call.form_fields:
        if name == "csrf":
            value = {"own": f"@{{{own} csrf}}@" if own else "x", "stolen": "@{ada csrf}@", "forged": "0" * 64}.get(
                proof
            )
            told += [] if value is None else [(name, value)]
        elif draw.random() < 0.8:
            told.append((name, values.text(draw, name) if fitting else values.hostile(draw)))
    if not fitting and draw.random() < 0.1:
        told += [("a", "b")] * draw.choice((30, 300))
    body = "&".join(
        f"{quote(name)}={value if value.startswith('@{') else quote(value.encode('utf-8', 'surrogatepass'))}"
        for name, value in told
    )
    forged = proof in ("forged", "none", "stolen")
    return body.encode(), b"application/x-www-form-urlencoded", forged


def _upload(draw: random.Random, fitting: bool) -> tuple[bytes, bytes]:
    source = GOOD if draw.random() < 0.6 else values.hostile(draw).encode("utf-8", "replace")
    if fitting:
        return part(
            b"file", draw.choice((b"k.py", b"k.cu", b"problem.zip", b"x.txt")), source
        ) + b"--kbfuzz--\r\n", MULTIPART.encode()
    name = values.hostile(draw).encode("utf-8", "surrogatepass")
    good = part(b"file", b"k.py", source)
    body = draw.choice(
        (
            part(b"file", name, source) + b"--kbfuzz--\r\n", good, good * 2 + b"--kbfuzz--\r\n",
            part(b"file", None, source) + b"--kbfuzz--",
            part(name[:200], b"k.py", source) + b"--kbfuzz--\r\n", b"", b"--kbfuzz--\r\n", b"\r\n" * 50, source,
            part(b"x", None, b"y") * 40 + good + b"--kbfuzz--\r\n", part(b"file", b"k.py",
            b"\xff\xfe\x00") + b"--kbfuzz--\r\n",
            part(b"file", b"k.py", source, b"Content-Transfer-Encoding: base64\r\n") + b"--kbfuzz--\r\n",
            part(b"file", b"k.py", source, b"X-Long: " + b"h" * 20_000 + b"\r\n") + b"--kbfuzz--\r\n",
            part(b"file", b"k.py", source, b"A: b\r\n" * 500) + b"--kbfuzz--\r\n", good.replace(b"\r\n", b"\n"),
            part(b"file", b"../../../tmp/fuzzed.py", source) + b"--kbfuzz--\r\n", part(b"file", b"k.py",
            b"a" * 1_100_000) + b"--kbfuzz--\r\n",
            part(b"file", b'k.py"; name="other', source) + b"--kbfuzz--\r\n", part(b"file", b"p.zip",
            b"PK\x03\x04" + b"z" * 90) + b"--kbfuzz--\r\n",
            part(b"file", b"k.py", b"#!POPCORN leaderboard vault\n" + GOOD) + b"--kbfuzz--\r\n",
            part(b"file", b"k.py", b"#!POPCORN gpus " + b"H100 " * 500 + b"\n" + GOOD) + b"--kbfuzz--\r\n",
        )
    )  # fmt: skip
    media = draw.choice((MULTIPART, MULTIPART, MULTIPART, "multipart/form-data", "multipart/mixed; boundary=kbfuzz",
    "text/plain",
                         "MULTIPART/FORM-DATA; BOUNDARY=kbfuzz", 'multipart/form-data; boundary=""',
                         "multipart/form-data; boundary=other",
                         "multipart/form-data; boundary=kbfuzz; charset=nope"))  # fmt: skip
    return body, media.encode()
