# ruff: noqa
# mypy: ignore-errors
# group: persistence
# catalogue: S3
# tries: leave System V memory, messages and semaphores, POSIX queues and an abstract socket for the next launch
# verdict: passed
# phases: all
# never: PERSISTED
import ctypes
import os
import socket
import time

KEY = 0x6B624D4B
libc = ctypes.CDLL(None, use_errno=True)
for _name, _get in (
    ("shm", lambda flags: libc.shmget(KEY, 4096, flags)),
    ("msg", lambda flags: libc.msgget(KEY, flags)),
    ("sem", lambda flags: libc.semget(KEY, 1, flags)),
):
    if _get(0o666) >= 0:
        print("PERSISTED", _name)
    _get(0o666 | 0o1000)
try:
    socket.socket(socket.AF_UNIX).connect("\0kb-marker")
    print("PERSISTED socket")
except OSError:
    pass
if os.fork() == 0:
    try:
        os.setsid()
        _server = socket.socket(socket.AF_UNIX)
        _server.bind("\0kb-marker")
        _server.listen()
        time.sleep(600)
    finally:
        os._exit(0)


def custom_kernel(data):
    return sorted(data)
