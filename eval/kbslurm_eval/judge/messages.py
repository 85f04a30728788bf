"""Messages between the judge and processes of its own, over a socket."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

_HEAD = struct.Struct("<IQ")


def send(line: socket.socket, told: dict[str, Any], blob: bytes | bytearray | memoryview) -> None:
    """One message between the judge and a process of its own: a few words, and bytes."""
    head = json.dumps(told).encode()
    line.sendall(_HEAD.pack(len(head), len(blob)) + head)
    line.sendall(blob)


def receive(line: socket.socket) -> tuple[dict[str, Any], bytes]:
    """The next message; EOFError if there will be none."""
    head, blob = _HEAD.unpack(_exactly(line, _HEAD.size))
    return json.loads(_exactly(line, head)), _exactly(line, blob)


def _exactly(line: socket.socket, size: int) -> bytes:
    found = bytearray(size)
    view, at = memoryview(found), 0
    while at < size:
        part = line.recv_into(view[at:], min(size - at, 1 << 24))
        if part == 0:
            raise EOFError
        at += part
    return bytes(found)
