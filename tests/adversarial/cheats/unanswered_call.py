# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T16
# tries: wait in a system call that another process has to answer (seccomp's user notification), where no signal stops it
# verdict: passed
import ctypes
import os
import struct
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
SECCOMP = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
GETPGID = {"x86_64": 121, "aarch64": 155}[os.uname().machine]
lines = [(0x20, 0, 0, 0), (0x15, 0, 1, GETPGID), (0x06, 0, 0, 0x7FC00000), (0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in lines))


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def receive(listener):
    libc.ioctl(listener, 0xC0502100, ctypes.create_string_buffer(80))
    while True:
        time.sleep(1)


started = []


def custom_kernel(data):
    if not started and len(data) > 1000:
        started.append(1)
        if os.fork() == 0:
            told = Program(len(lines), ctypes.cast(program, ctypes.c_void_p))
            # a listener, and only a killing signal ends the wait once it has heard
            listener = libc.syscall(SECCOMP, 1, 8 | 32, ctypes.byref(told))
            if listener < 0:
                os._exit(0)
            threading.Thread(target=receive, args=(listener,), daemon=True).start()
            libc.getpgid(0)
        time.sleep(0.05)
    return sorted(data)
