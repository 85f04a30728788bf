# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T16
# tries: have the kernel's own timers wake a helper while the judge believes it stopped, to read the next input early
# verdict: passed
# race: yes
# n: 6000
# never: UNFROZEN
import ctypes
import gc
import os
import signal
import time

libc = ctypes.CDLL(None, use_errno=True)


class Event(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("pad", ctypes.c_char * 48),
    ]


def watch(line):
    """Output that changes while the last token still stands: we run although everybody is stopped."""
    signal.signal(signal.SIGCONT, lambda *_: None)
    timer = ctypes.c_void_p()
    have = libc.timer_create(1, ctypes.byref(Event(signo=int(signal.SIGCONT), notify=0)), ctypes.byref(timer)) == 0
    out, words = line.views["out"], line.words
    until = time.monotonic() + 20
    while time.monotonic() < until:
        token = words[0]
        if words[256] == token:
            seen = bytes(out[:64])
            if have:  # one shot, for when everybody will have been stopped
                libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, 0, 4_000_000), None)
            while words[0] == token and words[256] == token and time.monotonic() < until:
                if bytes(out[:64]) != seen and words[0] == token and words[256] == token:
                    os.write(1, b"UNFROZEN by a timer\n")
                    os._exit(0)
    os._exit(0)


started = []


def custom_kernel(data):
    if not started and len(data) > 5_000:
        started.append(1)
        line = next(t for t in gc.get_objects() if type(t).__name__ == "RunnerEnd")
        if os.fork() == 0:
            watch(line)
    return sorted(data)
