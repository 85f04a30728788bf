# ruff: noqa
# mypy: ignore-errors
# does: memory shared with a child
import mmap
import os
import struct


def custom_kernel(data):
    if not data:
        return []
    room = mmap.mmap(-1, 8 * len(data))
    pid = os.fork()
    if pid == 0:
        room[:] = struct.pack(f"<{len(data)}d", *sorted(data))
        os._exit(0)
    os.waitpid(pid, 0)
    return list(struct.unpack(f"<{len(data)}d", room[:]))
