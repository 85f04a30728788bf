# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T16
# tries: call itself, and each of its threads, so that the kernel's line of its state reads as stopped, and run on
# verdict: passed
# race: yes
# n: 6000
# never: UNFROZEN
import ctypes
import gc
import os
import threading
import time

libc = ctypes.CDLL(None)


def watch(line):
    for name in (b") T 1 (", b"\n) T 1 1"):
        libc.prctl(15, name, 0, 0, 0)
    out, words = line.views["out"], line.words
    until = time.monotonic() + 20
    while time.monotonic() < until:
        token = words[0]
        if words[256] == token:
            seen = bytes(out[:64])
            while words[0] == token and words[256] == token and time.monotonic() < until:
                if bytes(out[:64]) != seen and words[0] == token and words[256] == token:
                    os.write(1, b"UNFROZEN under another name\n")
                    return


started = []


def custom_kernel(data):
    if not started and len(data) > 5_000:
        started.append(1)
        line = next(t for t in gc.get_objects() if type(t).__name__ == "RunnerEnd")
        if os.fork() == 0:
            threading.Thread(target=watch, args=(line,)).start()
            watch(line)
            os._exit(0)
    return sorted(data)
