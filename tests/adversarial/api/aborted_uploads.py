"""Hang up in the middle of uploads, so that the log fills with tracebacks and operators are woken for nothing."""

from __future__ import annotations

import socket
import struct

from tests.adversarial.api_ground import Ground, request

PATHS = (
    "/submission/transpose/H100/test",
    "/transpose/H100/test",
    "/user/submissions",
    "/user/join",
    "/login",
    "/admin/invites",
)


def attack(ground: Ground) -> None:
    ada, before = ground.account("ada"), ground.bugs()
    for number in range(ground.n(30, 300)):
        path = PATHS[number % len(PATHS)]
        who = ada.as_author if number % 2 else {}
        headers = {**who, "Content-Type": "multipart/form-data; boundary=b", "Content-Length": "90000"}
        with ground.socket() as line:
            line.sendall(request("POST", path, headers, b"--b\r\n" + b"a" * (number * 97 % 50_000)))
            if number % 3 == 0:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ground.must_answer("after aborted uploads")
    if (bugs := ground.bugs() - before) > 0:
        ground.fault(f"{bugs:.0f} aborted uploads were counted as bugs")
