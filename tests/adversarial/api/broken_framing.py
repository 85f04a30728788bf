"""Break a request's framing in mid-body, or send garbage after an early answer, so that the service takes it for a bug
of its own."""

from __future__ import annotations

import socket
from contextlib import suppress

from tests.adversarial.api_ground import Ground, request

BODIES = (
    b"zz\r\nabc\r\n0\r\n\r\n", b"0x5\r\nabcde\r\n0\r\n\r\n", b"5\r\nabcdeXX0\r\n\r\n", b"-1\r\n\r\n",
    b"F" * 20 + b"\r\n",
    b"5\r\nabcde\r\n" + b"0x1\r\n", b"3\r\nabc\r\n0\r\nX" + b"y" * 70_000,
)  # fmt: skip
PATHS = (
    "/user/join",
    "/submission/transpose/H100/test",
    "/login",
    "/admin/link",
    "/staff/pause",
    "/nowhere",
    "/health",
)


def attack(ground: Ground) -> None:
    ada, before = ground.account("ada"), ground.bugs()
    for number in range(ground.n(40, 400)):
        path, body = PATHS[number % len(PATHS)], BODIES[number % len(BODIES)]
        who = ada.as_author if number % 2 else {}
        headers = {**who, "Content-Type": "multipart/form-data; boundary=b", "Transfer-Encoding": "chunked"}
        with ground.socket() as line, suppress(OSError):
            line.settimeout(0.3)
            head = request("POST", path, headers)
            if number % 3:
                line.sendall(head + body)
            else:  # whoever answers before the body has come is sent garbage for it
                line.sendall(head)
                with suppress(TimeoutError):
                    line.recv(65_536)
                line.sendall(body)
            line.shutdown(socket.SHUT_WR)
            while line.recv(65_536):
                pass
    ground.must_answer("after broken framing")
    if (bugs := ground.bugs() - before) > 0:
        ground.fault(f"{bugs:.0f} requests with broken framing were counted as bugs")
