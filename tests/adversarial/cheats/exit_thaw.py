# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T16
# tries: have a helper woken by the deaths of its children (SIGCONT as their exit signal) after it was seen stopped
# verdict: passed
# race: yes
# n: 6000
# never: UNFROZEN
import ctypes
import gc
import mmap
import os
import signal
import time

libc = ctypes.CDLL(None, use_errno=True)


def watch(line):
    signal.signal(signal.SIGCONT, lambda *_: None)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    out, words = line.views["out"], line.words
    until = time.monotonic() + 20
    last = 0
    while time.monotonic() < until:
        token = words[0]
        if words[256] != token or token == last:
            continue
        last = token
        seen = bytes(out[:64])
        for n in range(6):
            # no flags, only the signal that the parent gets when this child has ended
            if libc.syscall(56, int(signal.SIGCONT), 0, 0, 0, 0) == 0:
                held = mmap.mmap(-1, (n + 1) << 21)
                for at in range(0, len(held), 4096):
                    held[at] = 1
                os._exit(0)
        while words[0] == token and words[256] == token and time.monotonic() < until:
            if bytes(out[:64]) != seen and words[0] == token and words[256] == token:
                os.write(1, b"UNFROZEN by a death\n")
                os._exit(0)
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG | 0x40000000)[0] == 0:
                    break
            except OSError:
                break
    os._exit(0)


started = []


def custom_kernel(data):
    if not started and len(data) > 5_000:
        started.append(1)
        line = next(t for t in gc.get_objects() if type(t).__name__ == "RunnerEnd")
        if os.fork() == 0:
            watch(line)
    return sorted(data)
