"""What isn't HTTP ends its connection, and is nobody's bug: not in mid-body, not after an early answer."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from kbslurm.api.pages.live import HEARTBEAT_S
from tests.flow.stage import HandClock, overheard
from tests.popcorn.served_api import ServedApi, served

TOP = "Host: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=b\r\nTransfer-Encoding: chunked\r\n"
GARBAGE = [b"zz\r\nabc\r\n0\r\n\r\n", b"0x5\r\nabcde\r\n", b"5\r\nabcdeXX0\r\n\r\n", b"F" * 21 + b"\r\n"]
PATHS = ["/user/join", "/submission/transpose/H100/test", "/login", "/nowhere", "/health", "/openapi.json"]


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


def bugs(api: ServedApi) -> list[str]:
    lines = api.context.metrics.text().decode().splitlines()
    return [line for line in lines if line.startswith('kbslurm_api_trouble_total{kind="bug"}')]


@pytest.mark.parametrize("early", [False, True], ids=["at once", "after an early answer"])
def test_what_isnt_http_is_nobodys_bug(api: ServedApi, caplog: pytest.LogCaptureFixture, early: bool) -> None:
    host, port = api.url.removeprefix("http://").split(":")
    token = api.client("ada").cli_id
    with caplog.at_level(logging.ERROR):
        for path in PATHS:
            for garbage in GARBAGE:
                for method, who in (("POST", ""), ("HEAD", ""), ("POST", f"X-Popcorn-Cli-Id: {token}\r\n")):
                    with socket.create_connection((host, int(port)), timeout=30) as line, suppress(ConnectionError):
                        line.sendall(f"{method} {path} HTTP/1.1\r\n{TOP}{who}\r\n".encode())
                        if early:
                            line.settimeout(0.2)
                            with suppress(TimeoutError):
                                assert line.recv(65_536).startswith(b"HTTP/1.1 ")
                            line.settimeout(30)
                        line.sendall(garbage)
                        line.shutdown(socket.SHUT_WR)
                        answer = b"".join(iter(lambda line=line: line.recv(65_536), b""))  # type: ignore[misc]
                        assert answer == b"" or answer.startswith(b"HTTP/1.1 "), answer
    assert not [record.getMessage() for record in caplog.records]
    assert bugs(api) == ['kbslurm_api_trouble_total{kind="bug"} 0.0']
    assert api.client(None).call("GET", "/health").json() == {"status": "ok"}


def test_whoever_sends_no_more_still_gets_the_answer(api: ServedApi) -> None:
    """As `nc -N` and some proxies do: a request, then the end of what is sent. Also when the answer is large."""
    host, port = api.url.removeprefix("http://").split(":")
    for path in ("/health", "/openapi.json", "/", "/nowhere"):
        for _ in range(20):
            with socket.create_connection((host, int(port)), timeout=30) as line:
                line.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
                line.shutdown(socket.SHUT_WR)
                head, _, body = b"".join(iter(lambda line=line: line.recv(65_536), b"")).partition(b"\r\n\r\n")  # type: ignore[misc]
            (length,) = [row for row in head.lower().split(b"\r\n") if row.startswith(b"content-length:")]
            assert len(body) == int(length.partition(b":")[2]) > 0, (path, head)


@pytest.mark.parametrize("path", ["judgements", "event-feed?stream=false"])
@pytest.mark.parametrize("asks", ["", "Upgrade: h2c\r\n"])
def test_so_does_whoever_asks_for_a_list_that_is_sent_in_parts(api: ServedApi, asks: str, path: str) -> None:
    """With an upgrade that nobody offers, the end of what is sent is seen only while the answer is on its way."""
    host, port = api.url.removeprefix("http://").split(":")
    for _ in range(20):
        with socket.create_connection((host, int(port)), timeout=30) as line:
            line.sendall(f"GET /contests/transpose/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{asks}\r\n".encode())
            line.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda line=line: line.recv(65_536), b""))  # type: ignore[misc]
        assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"\r\n0\r\n\r\n"), answer[-200:]


def test_a_stream_ends_with_its_reader(api: ServedApi) -> None:
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        line.sendall(b"GET /live/transpose HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert line.recv(65_536).startswith(b"HTTP/1.1 200")
        line.shutdown(socket.SHUT_WR)
        line.settimeout(HEARTBEAT_S - 3)
        while line.recv(65_536):  # it ends, and before the next heartbeat, or this times out
            pass


def test_what_isnt_http_is_refused_as_everything_else_is(api: ServedApi) -> None:
    """popcorn-cli prints `detail`. An upgrade that nobody offers is a usual request, and nothing for the log."""
    host, port = api.url.removeprefix("http://").split(":")
    with overheard() as told:
        for sent in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        ):
            with socket.create_connection((host, int(port)), timeout=30) as line:
                line.sendall(sent)
                head, _, body = b"".join(iter(lambda line=line: line.recv(65_536), b"")).partition(b"\r\n\r\n")  # type: ignore[misc]
            assert head.startswith(b"HTTP/1.1 400") and b"content-type: application/json" in head.lower()
            assert b"x-content-type-options: nosniff" in head.lower() and b"cache-control: no-store" in head.lower()
            assert json.loads(body) == {"detail": "this isn't a valid HTTP request"}
        said = told.getvalue()
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "x"}
        assert httpx.get(f"{api.url}/health", headers=upgrade).json() == {"status": "ok"}
    assert told.getvalue() == said
