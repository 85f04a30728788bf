"""Sends requests on sockets, as they are, and reads the answers strictly."""

from __future__ import annotations

import random
import re
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

import httpx

from tests.fuzz.requests import Request, head

PATIENCE_S = 40.0
# The rest of a request that has an end nowhere is never sent: no answer is owed, one that comes early is looked at.
BRIEFLY_S = 0.1
UNENDING = frozenset({"too long", "huge chunk", "cut chunk"})
ANSWER_CAP = 8 << 20
STREAMS = (b"text/event-stream", b"application/x-ndjson")
_SECRET = re.compile(rb"@\{([^}]*)\}@")
_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) [ -~]*\Z")


class Broken(Exception):
    """The answer isn't valid HTTP, or was cut off."""


class Silent(Exception):
    """The connection ended, or stayed open, without an answer."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer. A stream's body is what came first."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    is_stream: bool = False

    def header(self, name: bytes) -> bytes:
        return next((value for key, value in self.headers if key == name), b"")


class Sockets:
    """A sender with one connection that it keeps, as browsers and popcorn-cli do."""

    def __init__(self, host: str, port: int, secrets: Mapping[str, str]) -> None:
        self._where = (host, port)
        self._secrets = secrets
        self._kept: _Line | None = None
        self._httpx = httpx.Client(base_url=f"http://{host}:{port}", timeout=PATIENCE_S)

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
        self._httpx.close()

    def ask(self, request: Request) -> list[Answer]:
        """Send it as it wants to be sent; what was answered, in order, as far as anybody waits for it."""
        request = filled(request, self._secrets)
        if request.manner == "httpx":
            return self._by_httpx(request)
        if request.manner == "kept":
            return [self._on_the_kept(request)]
        data = framed(request)
        line = _Line(self._where)
        if not request.whole:
            line.wait_for(BRIEFLY_S if request.framing in UNENDING else 4.0)
        try:
            return self._alone(line, request, data)
        finally:
            line.close()

    def _on_the_kept(self, request: Request) -> Answer:
        for fresh in (False, True):
            if self._kept is None:
                self._kept, fresh = _Line(self._where), True
            try:
                self._kept.send(framed(request))
                found = self._kept.answer(request.method)
            except (Silent, OSError):
                self._kept.close()
                self._kept = None
                if fresh:
                    raise
                continue
            if found.is_stream or b"close" in found.header(b"connection").lower():
                self._kept.close()
                self._kept = None
            return found
        raise AssertionError("a fresh connection answers, or it is said that it didn't")

    def _alone(self, line: _Line, request: Request, data: bytes) -> list[Answer]:
        draw = random.Random(request.number)
        with nullcontext() if request.whole else suppress(OSError):
            match request.manner:
                case "hung up" | "reset":
                    line.send(data[: draw.choice((len(data), len(data) // 2, draw.randint(0, len(data))))])
                    if request.manner == "reset":
                        line.reset()
                    return []
                case "pieces":
                    at = sorted(draw.randint(0, len(data)) for _ in range(4))
                    for start, end in zip([0, *at], [*at, len(data)], strict=True):
                        line.send(data[start:end])
                case "pipelined":
                    probe = b"GET /health HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (self._where[0].encode(), self._where[1])
                    line.send(probe + data + probe)
                    return self._in_turn(line, ["GET", request.method, "GET"])
                case _:
                    line.send(data)
                    if request.manner == "half closed":
                        line.half_close()
        try:
            return [line.answer(request.method)]
        except (Silent, OSError):
            if request.whole:
                raise
            return []

    def _in_turn(self, line: _Line, methods: Sequence[str]) -> list[Answer]:
        found: list[Answer] = []
        for method in methods:
            found.append(line.answer(method))
            if found[-1].is_stream or b"close" in found[-1].header(b"connection").lower():
                break
        return found

    def _by_httpx(self, request: Request) -> list[Answer]:
        method, target, _ = request.line.decode("latin-1").split(" ")
        content = pieces(request.body, request.number) if request.framing == "chunked" else request.body
        headers = [(name, value) for name, value in request.headers if name != b"Host"]
        try:
            with self._httpx.stream(method, target, headers=headers, content=content) as told:
                names = [(name.lower(), value) for name, value in told.headers.raw]
                is_stream = told.headers.get("content-type", "").encode().startswith(STREAMS)
                body = next(told.iter_raw(), b"") if is_stream else told.read()
                return [Answer(status=told.status_code, headers=names, body=body, is_stream=is_stream)]
        except (httpx.LocalProtocolError, httpx.InvalidURL):
            return []  # httpx won't send such a thing
        except httpx.HTTPError as error:
            raise Silent(repr(error)) from None


class _Line:
    """One connection, and what came on it that nobody has read yet."""

    def __init__(self, where: tuple[str, int]) -> None:
        self._socket = socket.create_connection(where, timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._came = b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def wait_for(self, patience_s: float) -> None:
        self._socket.settimeout(patience_s)

    def half_close(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def close(self) -> None:
        self._socket.close()

    def answer(self, method: str) -> Answer:
        """The next answer on this connection."""
        while True:
            found = self._one(method)
            if found.status >= 200:
                return found

    def _one(self, method: str) -> Answer:
        while b"\r\n\r\n" not in self._came:
            if len(self._came) > 1 << 17:
                raise Broken("the answer's headers don't end")
            if not self._more():
                raise (Broken("the answer was cut off in its headers") if self._came else Silent("no answer"))
        top, _, self._came = self._came.partition(b"\r\n\r\n")
        first, *lines = top.split(b"\r\n")
        status = _STATUS.match(first)
        if status is None:
            raise Broken(f"not a status line: {first[:80]!r}")
        headers = []
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or name != name.strip():
                raise Broken(f"not a header: {line[:80]!r}")
            headers.append((name.lower(), value.strip()))
        found = Answer(status=int(status[1]), headers=headers, body=b"")
        is_stream = found.header(b"content-type").startswith(STREAMS) and found.status == 200
        if method == "HEAD" or found.status in (204, 304) or found.status < 200:
            return found
        if is_stream:
            self._until(1)
            return replace(found, body=self._came, is_stream=True)
        return replace(found, body=self._body(found))

    def _body(self, found: Answer) -> bytes:
        if found.header(b"transfer-encoding") == b"chunked":
            return b"".join(self._chunks())
        length = found.header(b"content-length")
        if length:
            return self._take(int(length))
        if b"close" not in found.header(b"connection"):
            raise Broken("an answer without a length on a connection that stays open")
        while self._more():
            pass
        return self._take(len(self._came))

    def _chunks(self) -> Iterator[bytes]:
        while True:
            while b"\r\n" not in self._came:
                self._until(len(self._came) + 1)
            size, _, self._came = self._came.partition(b"\r\n")
            yield self._take(int(size, 16))
            self._take(2)
            if int(size, 16) == 0:
                return

    def _take(self, count: int) -> bytes:
        if count > ANSWER_CAP:
            raise Broken(f"an answer of {count:,} bytes")
        self._until(count)
        found, self._came = self._came[:count], self._came[count:]
        return found

    def _until(self, count: int) -> None:
        while len(self._came) < count:
            if len(self._came) > ANSWER_CAP:
                raise Broken("an answer that doesn't end")
            if not self._more():
                raise Broken("the answer was cut off")

    def _more(self) -> bool:
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            raise Silent(f"no answer within {PATIENCE_S:.0f} s") from None
        except ConnectionError:
            return False
        self._came += data
        return bool(data)


def filled(request: Request, secrets: Mapping[str, str]) -> Request:
    """The request with this world's secrets in their places."""

    def told(data: bytes) -> bytes:
        if b"@{" not in data:
            return data
        return _SECRET.sub(lambda found: secrets.get(found[1].decode("utf-8", "replace"), "").encode(), data)

    headers = [(name, told(value)) for name, value in request.headers]
    return replace(request, line=told(request.line), headers=headers, body=told(request.body))


def framed(request: Request) -> bytes:
    """Its bytes on the wire, the body framed as it wants it."""
    body, headers = request.body, list(request.headers)
    length = (b"Content-Length", b"%d" % len(body))
    chunked = (b"Transfer-Encoding", b"chunked")
    draw = random.Random(request.number)
    match request.framing:
        case "plain":
            headers += [length] if body or request.method in ("POST", "PUT", "PATCH") else []
        case "chunked":
            headers.append(chunked)
            body = _as_chunks(body, request.number)
        case "no length":
            pass
        case "too short":
            headers.append((b"Content-Length", b"%d" % (len(body) // 2)))
        case "too long":
            headers.append((b"Content-Length", b"%d" % (len(body) + draw.choice((1, 1000, 10**7)))))
        case "both":
            headers += [length, chunked]
            body = _as_chunks(body, request.number)
        case "bad chunk":
            headers.append(chunked)
            size = draw.choice((b"zz", b"-1", b"0x5", b"", b" 5", b"5;" + b"e" * 5000, b"5\x00", b"5\n"))
            body = size + b"\r\n" + body + b"\r\n0\r\n\r\n"
        case "huge chunk":
            headers.append(chunked)
            body = draw.choice((b"F" * 15, b"F" * 17, b"7FFFFFFFFFFFFFFF", b"0" * 5000 + b"5")) + b"\r\n" + body
        case "cut chunk":
            headers.append(chunked)
            body = _as_chunks(body, request.number)[: -draw.randint(1, 7)]
        case "two lengths":
            headers += [length, (b"Content-Length", b"%d" % (len(body) + 1))]
    return head(request.line, headers) + body


def _as_chunks(body: bytes, number: int) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces(body, number)) + b"0\r\n\r\n"


def pieces(body: bytes, number: int) -> Iterator[bytes]:
    """The body in a few pieces."""
    draw = random.Random(number)
    at = sorted(draw.randint(0, len(body)) for _ in range(3))
    for start, end in zip([0, *at], [*at, len(body)], strict=True):
        if end > start:
            yield body[start:end]
