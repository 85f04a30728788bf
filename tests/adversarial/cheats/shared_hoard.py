# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R12
# tries: hold more memory than allowed as memory shared by name, in many pieces, some of them in a helper only
# verdict: memory error violation
# levels: 1 2
# why several: level 2 bounds the place itself, so that a write beyond it ends the process; elsewhere the judge counts
import os
from multiprocessing import shared_memory

PIECE = 24 << 20
held = []


def custom_kernel(data):
    if not held:
        for _ in range(60):  # 1.4 GiB where 1 GiB is allowed
            piece = shared_memory.SharedMemory(create=True, size=PIECE)
            piece.buf[::4096] = b"x" * len(piece.buf[::4096])
            held.append(piece)
    return sorted(data)
