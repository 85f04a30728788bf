"""What isn't HTTP ends its connection, and is nobody's bug: not in mid-body, not after an early answer."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.flow.stage import HandClock
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
