"""A connection from each rank to each other, made once and kept: for submissions and for the reference alike."""

import os
import socket
import struct
import time
from array import array


class Ring:
    """`send` and `receive` vectors of integers; `peers` are the other ranks."""

    def __init__(self) -> None:
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.peers = [rank for rank in range(self.world) if rank != self.rank]
        self._lines: dict[int, socket.socket] = {}
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as ear:
            ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ear.bind((host, port if self.rank == 0 else 0))
            ear.listen(self.world)
            self._meet(ear, host, port)
        for line in self._lines.values():
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _meet(self, ear: socket.socket, host: str, port: int) -> None:
        """Everybody tells rank 0 where it listens, hears where the others do, and calls those of lower rank."""
        mine = ear.getsockname()[1]
        if self.rank == 0:
            ports = {0: mine}
            for _ in self.peers:
                line = ear.accept()[0]
                rank, at = struct.unpack("<ii", _exactly(line, 8))
                self._lines[rank], ports[rank] = line, at
            for line in self._lines.values():
                line.sendall(struct.pack(f"<{self.world}i", *(ports[rank] for rank in range(self.world))))
            return
        first = self._lines[0] = _called(host, port)
        first.sendall(struct.pack("<ii", self.rank, mine))
        found = struct.unpack(f"<{self.world}i", _exactly(first, 4 * self.world))
        for rank in range(1, self.rank):
            self._lines[rank] = _called(host, found[rank])
            self._lines[rank].sendall(struct.pack("<i", self.rank))
        for _ in range(self.rank + 1, self.world):
            line = ear.accept()[0]
            self._lines[struct.unpack("<i", _exactly(line, 4))[0]] = line

    def send(self, rank: int, values: list[int]) -> None:
        blob = array("q", values).tobytes()
        self._lines[rank].sendall(struct.pack("<q", len(blob)) + blob)

    def receive(self, rank: int) -> list[int]:
        line = self._lines[rank]
        return array("q", _exactly(line, struct.unpack("<q", _exactly(line, 8))[0])).tolist()


def _called(host: str, port: int) -> socket.socket:
    """Rank 0 may come later than the others."""
    for _ in range(600):
        try:
            return socket.create_connection((host, port))
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise ConnectionRefusedError(f"nobody listens on port {port}")


def _exactly(line: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        part = line.recv(size - len(found))
        if not part:
            raise ConnectionResetError("a rank has hung up")
        found += part
    return bytes(found)
