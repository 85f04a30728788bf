# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T16
# tries: keep a helper running by forking and ending all the time, so that whoever stops all processes misses one
# verdict: passed
# race: yes
# n: 6000
# never: UNFROZEN
import ctypes
import gc
import os
import time


def end():
    return next(t for t in gc.get_objects() if type(t).__name__ == "RunnerEnd")


def hop(line):
    out, words = line.views["out"], line.words
    while True:
        token = words[0]
        if words[256] == token:
            seen = bytes(out[:64])
            for _ in range(60):
                if words[0] != token or words[256] != token:
                    break
                if bytes(out[:64]) != seen and words[0] == token and words[256] == token:
                    os.write(1, b"UNFROZEN by hopping\n")
                    os._exit(0)
        if os.fork():
            os._exit(0)


started = []


def custom_kernel(data):
    if not started and len(data) > 5_000:
        started.append(1)
        line = end()
        for _ in range(3):
            try:
                pid = os.fork()
            except BlockingIOError:  # those that ended before aren't all gone yet
                break
            if pid == 0:
                try:
                    if os.fork():
                        os._exit(0)
                    hop(line)
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
    return sorted(data)
