"""Fill the service's memory by huge multipart and chunked bodies, before it has looked who sends them."""

from __future__ import annotations

import socket
from contextlib import suppress
from functools import partial

from tests.adversarial.api_ground import Ground, request

PATHS = (
    "/user/join",
    "/admin/invites",
    "/admin/link",
    "/admin/update-problems",
    "/bot/people",
    "/transpose/H100/test",
    "/login",
)
MIB = 1 << 20
MOST_MIB = 24.0


def attack(ground: Ground) -> None:
    size = ground.n(48, 512) * MIB
    ada = ground.account("ada")
    for path in PATHS:
        for framing in ("length", "chunks"):
            for media in ("multipart/form-data; boundary=b", "application/json"):
                grew = ground.peak_mib(partial(_send, ground, path, framing, media, size, {}))
                _judge(ground, grew, f"{size // MIB} MiB of {media} to {path} by {framing}")
    for path in ("/user/join", "/transpose/H100/test"):
        grew = ground.peak_mib(
            partial(_send, ground, path, "length", "multipart/form-data; boundary=b", size, ada.as_author)
        )
        _judge(ground, grew, f"{size // MIB} MiB to {path} by a participant")


def _judge(ground: Ground, grew: float, what: str) -> None:
    ground.figures[what] = round(grew, 1)
    if grew > MOST_MIB:
        ground.fault(f"{what}: the service grew by {grew:.0f} MiB")


def _send(ground: Ground, path: str, framing: str, media: str, size: int, who: dict[str, str]) -> None:
    headers = {"Content-Type": media, **who}
    headers |= {"Content-Length": str(size)} if framing == "length" else {"Transfer-Encoding": "chunked"}
    start = b'--b\r\nContent-Disposition: form-data; name="code"\r\n\r\n'
    piece, left = b"a" * MIB, size
    with ground.socket() as line, suppress(OSError):  # it may be refused in mid-body
        line.sendall(request("POST", path, headers))
        while left > 0:
            data = start + piece[len(start) :] if left == size else piece
            line.sendall(data if framing == "length" else b"%x\r\n%s\r\n" % (len(data), data))
            left -= MIB
        if framing == "chunks":
            line.sendall(b"0\r\n\r\n")
        line.shutdown(socket.SHUT_WR)
        while line.recv(MIB):
            pass
