# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R12
# tries: hold more memory than allowed in processes whose first thread has ended, which look dead and empty from outside
# verdict: memory
import ctypes
import os
import threading
import time

libc = ctypes.CDLL(None)
EXIT = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
started = []


def hold(ready):
    held = bytearray(190 << 20)
    for at in range(0, len(held), 4096):
        held[at] = 1
    os.write(ready, b"y")
    time.sleep(60)


def custom_kernel(data):
    if not started:
        for _ in range(7):
            told, ready = os.pipe()
            started.append(told)
            if os.fork() == 0:
                threading.Thread(target=hold, args=(ready,)).start()
                libc.syscall(EXIT, 0)
        for told in started:
            os.read(told, 1)
    return sorted(data)
